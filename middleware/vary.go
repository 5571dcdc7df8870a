package middleware

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RFC 9111 4.1: the pages of one URL are told apart by fields of the request, which Vary names. The URL's key holds an
// index of those names then, and each variant has a key of its own.

// varyOf are the names that a response varies by. One with an encoding varies by Accept-Encoding, whether it says so or
// not: who does not understand the encoding must not get it.
func varyOf(h http.Header) []string {
	var names []string
	for _, name := range list(h, "Vary") {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		names = append(names, "Accept-Encoding")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// indexed reports whether the pages of a URL may be told apart at all.
func (rt *Route) indexed(vary []string) bool {
	return len(vary) > 0 || rt.Key != nil || len(rt.Cookies) > 0
}

// variant is what tells pages of one URL apart: for each name whether the field is there, and its values on one line. The
// cookies and the key that the route names are treated as fields are.
func (v *visit) variant(vary []string) string {
	if !v.route.indexed(vary) {
		return ""
	}
	parts := []string{v.extra}
	for _, name := range vary {
		_, there := v.r.Header[name]
		parts = append(parts, name, strconv.FormatBool(there), normal(v.r.Header, name))
	}
	for _, name := range v.route.Cookies {
		cookies := v.r.CookiesNamed(name)
		parts = append(parts, name, strconv.Itoa(len(cookies)))
		for _, c := range cookies {
			parts = append(parts, c.Value)
		}
	}
	return digest(parts...)
}

// normal is what a field says, written in one way as far as its syntax is known: lines are joined, and the spaces and the
// case of letters do not count in those that negotiate. The order does, which handlers may go by.
func normal(h http.Header, name string) string {
	switch name {
	case "Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language":
		return strings.ToLower(strings.Join(list(h, name), ","))
	}
	lines := make([]string, len(h[name]))
	for i, line := range h[name] {
		lines[i] = strings.Trim(line, " \t")
	}
	return strings.Join(lines, ", ")
}

// variantKey is the key of the variant that a request wants.
func (v *visit) variantKey(x *index) string {
	return v.primary + v.variantSuffix(x)
}

func (v *visit) variantSuffix(x *index) string { return ":" + x.Generation + ":" + v.variant(x.Vary) }

// newIndex is the index of a URL whose first response is p.
func newIndex(p *page, lasts terms) *index {
	return &index{Generation: newGeneration(), Vary: p.Vary, Life: min(max(lasts.total(), time.Second), maxLifetime), first: p}
}

func newGeneration() string { return rand.Text() }

// union are the names that either index varies by.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// covers reports whether pages that vary by names may be kept under an index.
func (x *index) covers(names []string) bool {
	for _, name := range names {
		if !slices.Contains(x.Vary, name) {
			return false
		}
	}
	return true
}
