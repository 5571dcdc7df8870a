package middleware

import (
	"time"

	"github.com/stockade-cache/stockade"
)

// verdict says what a request may have of a page.
type verdict uint8

const (
	usable     verdict = iota
	toRefresh          // it may be served while it is renewed
	toValidate         // only when the handler says, for this request, that it stands
	gone               // it was purged, or is too old for this request
	ofOther            // it was made for another variant
	forbidden          // it must not answer a request with Authorization
)

// judge says what the request may have of a page that the cache would serve (RFC 9111 4).
func (v *visit) judge(e entry) verdict {
	p := e.Value.Page
	switch {
	case p.Variant != v.variant(p.Vary): // 4.1
		return ofOther
	case v.r.Header["Authorization"] != nil && !p.Authorized: // 3.5
		return forbidden
	case p.Validate: // 5.2.2.4
		return toValidate
	case v.refuses(e): // 5.2.1
		return gone
	}
	purged := v.purged(p, e.Source == stockade.Joined || e.Source == stockade.Remote)
	switch {
	case purged == hard, purged == soft && p.Stale == 0:
		return gone
	case purged == soft:
		return toRefresh
	}
	return usable
}

// refuses reports whether the request's own Cache-Control forbids the page (RFC 9111 5.2.1), where that counts. A page that
// was made while the request waited is never too old.
func (v *visit) refuses(e entry) bool {
	if !v.route.ClientControl || e.Source == stockade.Joined || e.Source == stockade.Remote {
		return false
	}
	cc := parseControl(v.r.Header["Cache-Control"])
	if cc.has("no-cache") || len(cc) == 0 && parseControl(v.r.Header["Pragma"]).has("no-cache") { // 5.4
		return true
	}
	age := e.Value.Page.age(e)
	if d, ok := cc.seconds("max-age"); ok && age.Truncate(time.Second) >= d {
		return true
	}
	d, ok := cc.seconds("min-fresh")
	return ok && e.Value.Page.Fresh-age < d
}

// asksNoStore reports whether the response to the request must not be stored (RFC 9111 5.2.1.5).
func (v *visit) asksNoStore() bool {
	return len(v.r.Header["Cache-Control"]) > 0 && parseControl(v.r.Header["Cache-Control"]).has("no-store")
}

// onlyIfCached reports whether the handler must not be run for the request (RFC 9111 5.2.1.7).
func (v *visit) onlyIfCached() bool {
	return v.route.ClientControl && parseControl(v.r.Header["Cache-Control"]).has("only-if-cached")
}

// bypass says why a request has nothing to do with the cache; empty when it has.
func (v *visit) bypass() string {
	r := v.r
	switch {
	case r.Header["Authorization"] != nil && !v.route.Authorization: // RFC 9111 3.5
		return "authorization"
	case r.Header["Upgrade"] != nil: // RFC 9110 7.8
		return "upgrade"
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0: // RFC 9110 9.3.1
		return "body"
	case isRewritten(r):
		return "rewritten"
	case r.Header["Cookie"] != nil && v.route.Cookies == nil && v.route.Key == nil:
		return "cookie"
	}
	if v.route.Key != nil {
		var ok bool
		if v.extra, ok = v.route.Key(r); !ok {
			return "key"
		}
	}
	return ""
}

// fresh looks for a fresh page of the URL without running the handler: what answers HEAD, a Range, or a request that wants
// nothing stored or nothing run.
func (v *visit) fresh() (entry, bool) {
	ctx := v.r.Context()
	key := v.target.key("GET")
	e, err := v.m.cache.Lookup(ctx, key)
	if err == nil && e.Value.Index != nil {
		v.index = e
		e, err = v.m.cache.Lookup(ctx, key+v.variantSuffix(e.Value.Index))
	}
	ok := err == nil && e.Value.Page != nil && v.judge(e) == usable && e.Value.Page.age(e) < e.Value.Page.Fresh
	v.index = entry{}
	return e, ok
}
