package middleware

import (
	"net/http"
	"time"
)

// staleness is for how long after its freshness a response may be served while it is renewed (RFC 5861 3), and when the
// handler fails (RFC 5861 4). Some directives forbid it, whatever else is said (RFC 9111 4.2.4, 5.2.2.2, 5.2.2.4, 5.2.2.8,
// 5.2.2.10).
func (rt *Route) staleness(cc directives) (whileRevalidate, onError time.Duration) {
	for _, forbids := range []string{"must-revalidate", "proxy-revalidate", "no-cache", "s-maxage"} {
		if cc.has(forbids) {
			return 0, 0
		}
	}
	own := func(name string, byRoute time.Duration) time.Duration {
		if d, ok := cc.seconds(name); ok {
			return d
		}
		return max(byRoute, 0)
	}
	return own("stale-while-revalidate", rt.StaleWhileRevalidate), own("stale-if-error", rt.StaleIfError)
}

// isError reports whether a status lets an older page be served instead (RFC 5861 4).
func isError(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// errorGrace is for how long after a failure of the handler an older page is served without asking it again.
const errorGrace = time.Second

// insteadOfError returns what is stored when the handler fails and an older page may be served: that page, as stale as it
// is, for a moment, while one run at a time tries again.
func (p *page) insteadOfError(old entry) (entry, bool) {
	left := p.Fresh + p.OnError - p.age(old)
	if p.OnError == 0 || left <= 0 {
		return entry{}, false
	}
	older := *p
	older.Age = p.age(old)
	return entry{
		Value: storedPage(&older), TTL: time.Millisecond, StaleFor: orNone(min(left, errorGrace)), KeepFor: orNone(left - errorGrace),
	}, true
}

// orNone is a lifetime for the cache, which takes zero for its own default.
func orNone(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return -1
	}
	return d
}
