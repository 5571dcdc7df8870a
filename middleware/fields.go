package middleware

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// hopByHop are fields of one connection, which are not stored (RFC 9111 3.1, RFC 9110 7.6.1).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// storedFields are those of a response that are stored (RFC 9111 3.1). Age goes into the age of the page, and Cache-Status
// tells of this exchange alone.
func (rt *Route) storedFields(h http.Header, now time.Time) http.Header {
	fields := h.Clone()
	for _, name := range list(h, "Connection") {
		fields.Del(name)
	}
	for _, names := range [][]string{hopByHop, rt.NotStored, {"Age", "Cache-Status"}} {
		for _, name := range names {
			delete(fields, name)
		}
	}
	for name := range fields {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(fields, name)
		}
	}
	if fields.Get("Date") == "" {
		fields.Set("Date", now.UTC().Format(http.TimeFormat))
	}
	return fields
}

// kept are fields that a 304 does not change: they describe the body that is stored (RFC 9111 3.2).
var kept = []string{"Content-Encoding", "Content-Length", "Content-Md5", "Content-Range", "Etag"}

// updated returns the fields of a stored response after a 304 (RFC 9111 3.2, 4.3.4).
func (rt *Route) updated(stored, notModified http.Header, now time.Time) http.Header {
	fields := stored.Clone()
	for name, values := range rt.storedFields(notModified, now) {
		if !slices.Contains(kept, name) {
			fields[name] = values
		}
	}
	return fields
}

// copyFields sets the fields of a response on a writer whose header other middlewares may have set. Theirs stay, also
// where both say something in these lists.
func copyFields(to, from http.Header) {
	n := 0
	for _, values := range from {
		n += len(values)
	}
	all := make([]string, 0, n) // what is stored is shared: nobody may get its slices
	for name, values := range from {
		start := len(all)
		all = append(all, values...)
		values := all[start:len(all):len(all)]
		if (name == "Vary" || name == "Set-Cookie") && len(to[name]) > 0 {
			to[name] = append(to[name], values...)
			continue
		}
		to[name] = values
	}
}
