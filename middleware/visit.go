package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stockade-cache/stockade"
)

// visit is one request on its way through the middleware.
type visit struct {
	m     *Middleware
	route *Route
	next  http.Handler
	w     http.ResponseWriter
	r     *http.Request

	target  target
	primary string // the key of the URL and the method
	extra   string // what the route's Key says
	index   entry  // of the URL, when the request is for a variant; its Value is nil before
	start   time.Time
	status  cacheStatus
}

// read answers GET and HEAD.
func (v *visit) read() {
	if reason := v.bypass(); reason != "" {
		v.status.forwarded("bypass", reason)
		v.pass(entry{}, "")
		return
	}
	if v.r.Method == http.MethodHead || v.r.Header["Range"] != nil || v.asksNoStore() || v.onlyIfCached() {
		if e, ok := v.fresh(); ok {
			v.deliver(e)
			return
		}
	}
	switch {
	case v.onlyIfCached():
		v.refuse(http.StatusGatewayTimeout, "only-if-cached")
	case v.r.Header["Range"] != nil: // a part is neither stored nor shared
		v.status.forwarded("bypass", "range")
		v.pass(entry{}, "")
	case v.asksNoStore(): // RFC 9111 5.2.1.5
		v.status.forwarded("request", "no-store")
		v.pass(entry{}, "")
	default:
		v.follow()
	}
}

// maxRounds is how often a request goes round: from the URL to its variant, and again when what it met could not be used.
const maxRounds = 8

// follow goes from the key of the URL to a page that answers the request: one that is there, one that another has made
// meanwhile, or its own.
func (v *visit) follow() {
	key, unusable, again := v.primary, entry{}, false
	for range maxRounds {
		run := v.newRun(again)
		e, err := v.fetch(run, key, unusable)
		if run.isLed() {
			v.lead(run, e, err)
			return
		}
		switch {
		case err != nil:
			if again || !v.holdOff(err) {
				v.fail(err)
				return
			}
			again = true
		case e.Value.Mark != nil:
			v.missed(e.Value.Mark.Reason)
			v.pass(e, key)
			return
		case e.Value.Index != nil:
			v.index, unusable = e, entry{}
			// Who did not wait for its run finds that page under its own key, which knows whether it is still good.
			if first := e.Value.Index.first; first != nil && e.Source == stockade.Joined {
				if e := (entry{Value: &stored{Page: first}, Age: e.Age, Source: e.Source}); v.judge(e) == usable {
					v.deliver(e)
					return
				}
			}
			key = v.variantKey(e.Value.Index)
		default:
			switch v.judge(e) {
			case usable:
				v.deliver(e)
				return
			case toValidate:
				v.status.forwarded("stale", "no-cache")
				v.pass(e, key)
				return
			case toRefresh:
				v.m.refresh(v.newRun(false), key, e)
				v.deliver(e)
				return
			case gone:
				unusable = e
			case ofOther: // what tells pages apart has changed
				key, unusable, v.index = v.primary, entry{}, entry{}
			case forbidden:
				v.status.forwarded("bypass", "authorization")
				v.pass(entry{}, "")
				return
			}
		}
	}
	v.status.forwarded("miss", "unsettled")
	v.pass(entry{}, "")
}

// fetch asks the cache for what a key holds, or takes part in the run that fills it, for WaitTimeout.
func (v *visit) fetch(run *run, key string, unusable entry) (entry, error) {
	run.start = time.Now()
	ctx, cancel := context.WithTimeoutCause(v.r.Context(), v.route.WaitTimeout, errWaited)
	defer cancel()
	if unusable.Value != nil {
		return v.m.cache.Renew(ctx, key, unusable, run.load)
	}
	return v.m.cache.Fetch(ctx, key, run.load)
}

// errWaited ends the wait for the run of another.
var errWaited = errors.New("middleware: waited for too long")

// missed notes why a request had to be answered by the handler.
func (v *visit) missed(detail string) { v.status.forwarded(v.miss(), detail) }

// handled is the request as the handler gets it: with no cookies but those of the route, if it names them.
func (rt *Route) handled(of *http.Request, ctx context.Context) *http.Request {
	r := of.Clone(ctx)
	if rt.Cookies != nil {
		r.Header.Del("Cookie")
		for _, name := range rt.Cookies {
			for _, c := range of.CookiesNamed(name) {
				r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value, Quoted: c.Quoted})
			}
		}
	}
	return r
}
