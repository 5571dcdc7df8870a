package middleware

import (
	"net/http"
	"slices"
	"strings"
)

// RFC 9213: targeted fields say to some caches what Cache-Control and Expires say to the others.

// controlOf is what a response says to this cache: by the first of the route's targeted fields that is there and valid, or by
// Cache-Control. With a targeted one Expires does not count either (2.2).
func (rt *Route) controlOf(h http.Header) (cc directives, targeted bool) {
	for _, name := range rt.Targeted {
		if ds, ok := parseTargeted(h[name]); ok && len(ds) > 0 {
			return ds, true
		}
	}
	return parseControl(h["Cache-Control"]), false
}

// parseTargeted reads a targeted field, which unlike Cache-Control is a dictionary (RFC 9651 4.2.2): one mistake, and all of
// it counts for nothing. Of a directive that stands there twice the last counts.
func parseTargeted(lines []string) (ds directives, ok bool) {
	s := sfText(strings.Trim(strings.Join(lines, ","), " "))
	for s != "" {
		var d directive
		if d.name, ok = s.key(); !ok {
			return nil, false
		}
		if s.skip("=") {
			if d.value, ok = s.value(); !ok {
				return nil, false
			}
			if _, d.valued = deltaSeconds(d.value); !d.valued { // 60 in quotes is no number
				d.value, d.broken = "", true
			}
		}
		if !s.parameters() {
			return nil, false
		}
		ds = append(slices.DeleteFunc(ds, func(before directive) bool { return before.name == d.name }), d)
		s.spaces()
		if s == "" {
			break
		}
		comma := s.skip(",")
		s.spaces()
		if !comma || s == "" {
			return nil, false
		}
	}
	return ds, true
}
