package middleware

import (
	"context"
	"net/http"
	"net/url"
	"slices"
)

// safe are the methods that change nothing, of RFC 9110 9.2.1 and the registry, besides GET and HEAD.
var safe = []string{"OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY", "PRI"}

func isSafe(method string) bool { return slices.Contains(safe, method) }

// write passes a request with an unsafe method on. When it succeeds, what is stored of its URL is invalidated before the
// client hears of it (RFC 9111 4.4), and a run that began before is not stored after.
func (v *visit) write() {
	v.status.forwarded("method", "")
	w := &watcher{ResponseWriter: v.w}
	w.before = func(status int, h http.Header) bool {
		if status >= 200 && status < 400 {
			v.outdate(h)
		}
		v.tellForwarded(h, status)
		return true
	}
	v.next.ServeHTTP(w, v.r)
	w.end()
}

// outdate invalidates the request's URL, and what the response names as changed with it on the same server. An error of
// Redis has been told to the Observer; the response is not its victim.
func (v *visit) outdate(h http.Header) {
	ctx := context.WithoutCancel(v.r.Context())
	targets := []target{v.target}
	for _, name := range []string{"Location", "Content-Location"} {
		if t, ok := v.target.resolve(h.Get(name)); ok {
			targets = append(targets, t)
		}
	}
	var keys []string
	for _, t := range targets {
		for _, key := range t.keys() {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	_ = v.m.cache.Invalidate(ctx, keys...)
	if v.route.Tags {
		for _, group := range groupInvalidation(v.target, h) {
			_ = v.m.tags.purge(ctx, group, hard)
		}
	}
}

// resolve returns the target of a reference in a response, if it is of the same origin.
func (t target) resolve(reference string) (target, bool) {
	if reference == "" {
		return target{}, false
	}
	base, err := url.Parse(t.origin() + t.uri)
	if err != nil {
		return target{}, false
	}
	u, err := base.Parse(reference)
	if err != nil {
		return target{}, false
	}
	other, ok := target{u.Scheme, u.Host, u.RequestURI()}.normal()
	return other, ok && other.origin() == t.origin()
}
