package middleware

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// terms are on what a response may be stored.
type terms struct {
	fresh    time.Duration // its freshness lifetime
	age      time.Duration // how old it came
	stale    time.Duration // how long after its freshness it may be served while it is renewed
	onError  time.Duration // how long after it when the handler fails
	keep     time.Duration // how long after it, as something to validate
	validate bool          // every use of it has to be validated
}

// total is how long a response is of use.
func (t terms) total() time.Duration {
	return min(max(t.fresh-t.age, 0)+max(t.stale, t.onError, t.keep), maxLifetime)
}

// lifetimes are those of a page in the cache.
func (t terms) lifetimes(rt *Route, took time.Duration) (e entry) {
	if t.validate {
		// Until then the page serves as a mark.
		return entry{TTL: rt.HitForMiss, StaleFor: -1, KeepFor: orNone(t.keep)}
	}
	fresh := t.fresh - t.age - took
	stale := t.stale
	if fresh < time.Millisecond { // stale when it came
		fresh, stale = time.Millisecond, stale+fresh
	}
	return entry{TTL: fresh, StaleFor: orNone(stale), KeepFor: orNone(max(t.onError, t.keep) - max(stale, 0))}
}

// byDefault are the statuses that the TTL of a route is for: those that RFC 9110 15.1 calls heuristically cacheable, but
// for 206, and without the errors of a client or server that are rarely meant to last.
var byDefault = []int{200, 203, 204, 300, 301, 308, 404, 410}

// storable says on what terms the response to a request may be stored and shared (RFC 9111 3), or why it may not.
func (rt *Route) storable(r *http.Request, status int, h http.Header, now time.Time) (t terms, refused string) {
	cc, targeted := rt.controlOf(h)
	understood := http.StatusText(status) != ""
	switch {
	case status < 200, status == http.StatusPartialContent, status == http.StatusNotModified: // RFC 9111 3, 3.3
		return t, "status"
	case cc.has("must-understand") && !understood: // 5.2.2.3
		return t, "must-understand"
	case cc.has("no-store") && !cc.has("must-understand"): // 5.2.2.5, 5.2.2.3
		return t, "no-store"
	case cc.has("private"): // 5.2.2.7
		return t, "private"
	case len(h["Set-Cookie"]) > 0 && !rt.SetCookie: // 7.3
		return t, "set-cookie"
	case slices.Contains(list(h, "Vary"), "*"): // 4.1
		return t, "vary"
	case r.Header["Authorization"] != nil && !allowsAuthorization(cc): // 3.5
		return t, "authorization"
	case parseControl(r.Header["Cache-Control"]).has("no-store"): // 5.2.1.5
		return t, "request-no-store"
	case isEventStream(h):
		return t, "stream"
	}
	var known bool
	if t.fresh, known = freshnessLifetime(cc, targeted, h, now); !known && rt.TTL > 0 && slices.Contains(byDefault, status) {
		t.fresh, known = rt.TTL, true
	}
	t.age = initialAge(h, now)
	t.stale, t.onError = rt.staleness(cc)
	if !known { // else the route's StaleWhileRevalidate alone would store every response, errors too
		t.stale = 0
	}
	if validators(h) && status == http.StatusOK {
		t.keep = max(rt.KeepFor, 0)
	}
	switch {
	case cc.has("no-cache"): // 5.2.2.4
		t.validate = true
	case t.fresh <= t.age && t.fresh+t.stale <= t.age:
		t.validate = true // it is stale already: 4.2.4
	}
	if t.validate && t.keep == 0 {
		if cc.has("no-cache") {
			return t, "no-cache"
		}
		return t, "no-freshness"
	}
	return t, ""
}

// allowsAuthorization reports whether a response to a request with Authorization may be shared (RFC 9111 3.5).
func allowsAuthorization(cc directives) bool {
	return cc.has("public") || cc.has("s-maxage") || cc.has("must-revalidate")
}

func isEventStream(h http.Header) bool {
	mediaType, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream")
}
