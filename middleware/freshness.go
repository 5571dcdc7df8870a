package middleware

import (
	"net/http"
	"strings"
	"time"
)

// freshnessLifetime is how long a response is fresh by its own word (RFC 9111 4.2.1): by a directive, or else by Expires, if
// that counts. What cannot be read is stale.
func freshnessLifetime(cc directives, targeted bool, h http.Header, now time.Time) (d time.Duration, explicit bool) {
	for _, name := range []string{"s-maxage", "max-age"} {
		if d, ok := cc.seconds(name); ok {
			return d, true
		}
	}
	lines := h["Expires"]
	if len(lines) == 0 || targeted {
		return 0, false
	}
	expires, err := http.ParseTime(lines[0])
	if err != nil || len(lines) > 1 {
		return 0, true
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		date = now
	}
	return min(max(expires.Sub(date), 0), maxLifetime), true
}

// initialAge is how old a response was when it came, but for its delay (RFC 9111 4.2.3).
func initialAge(h http.Header, now time.Time) time.Duration {
	age := ageValue(h)
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		// A Date has whole seconds: less than one tells nothing.
		if apparent := now.Sub(date); apparent >= time.Second {
			age = max(age, min(apparent, maxLifetime))
		}
	}
	return age
}

// ageValue reads the first member of Age. A value that is no number is ignored (RFC 9111 5.1).
func ageValue(h http.Header) time.Duration {
	lines := h["Age"]
	if len(lines) == 0 {
		return 0
	}
	first, _, _ := strings.Cut(lines[0], ",")
	d, _ := deltaSeconds(strings.Trim(first, " \t"))
	return d
}
