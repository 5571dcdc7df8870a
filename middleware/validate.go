package middleware

import (
	"net/http"
	"strings"
	"time"
)

// withoutConditions removes from a request what may make its response one for this client alone (RFC 9110 13.1, 14.2).
func withoutConditions(h http.Header) {
	for _, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range"} {
		delete(h, name)
	}
}

// conditional makes a request one for whether a page still stands (RFC 9111 4.3.1).
func conditional(h http.Header, p *page) {
	if etag := p.Header.Get("Etag"); etag != "" {
		h.Set("If-None-Match", etag)
	}
	if modified := p.Header.Get("Last-Modified"); modified != "" {
		h.Set("If-Modified-Since", modified)
	}
}

// notModified reports whether a client has what a response would bring (RFC 9111 4.3.2, RFC 9110 13.2.2).
func notModified(r *http.Request, h http.Header) bool {
	if lines := r.Header["If-None-Match"]; lines != nil {
		etag := h.Get("Etag")
		for _, member := range etags(lines) {
			if member == "*" || etag != "" && weak(member) == weak(etag) { // RFC 9110 8.8.3.2
				return true
			}
		}
		return false
	}
	since, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	if err != nil {
		return false
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		if modified, err = http.ParseTime(h.Get("Date")); err != nil {
			modified = time.Now()
		}
	}
	return !modified.After(since)
}

// etags are the members of a list of entity-tags. Unlike in other quotes a backslash is just that (RFC 9110 8.8.3).
func etags(lines []string) []string {
	var members []string
	for _, line := range lines {
		quoted, start := false, 0
		for i := 0; i <= len(line); i++ {
			switch {
			case i == len(line), line[i] == ',' && !quoted:
				members = append(members, strings.Trim(line[start:i], " \t"))
				start = i + 1
			case line[i] == '"':
				quoted = !quoted
			}
		}
	}
	return members
}

// weak is an entity-tag without what makes it a weak one.
func weak(etag string) string { return strings.TrimPrefix(etag, "W/") }

// dropBody removes the fields that a 304 should not have: they describe a body (RFC 9110 15.4.5).
func dropBody(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Content-") && name != "Content-Location" && name != "Content-Security-Policy" &&
			name != "Content-Security-Policy-Report-Only" {
			delete(h, name)
		}
	}
	if h.Get("Etag") != "" {
		delete(h, "Last-Modified")
	}
}
