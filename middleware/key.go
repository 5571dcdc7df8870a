package middleware

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// A key is made of the target URI (RFC 9111 2), byte by byte as it was sent: what two spellings mean is the handler's to
// say. The keys of one URI share a slot of a cluster.

// target is what a request asks for: scheme, host and what stood in the request line.
type target struct {
	scheme, host, uri string
}

// targetOf returns the target of a request, or false when it cannot be told.
func (m *Middleware) targetOf(r *http.Request) (target, bool) {
	t := target{m.opts.Scheme, r.Host, r.RequestURI}
	if t.scheme == "" {
		t.scheme = "http"
		if r.TLS != nil {
			t.scheme = "https"
		}
	}
	if !strings.HasPrefix(t.uri, "/") || isRewritten(r) { // the former is absolute, or of a request that no server made
		t.uri = r.URL.RequestURI()
	}
	t, ok := t.normal()
	return t, ok && !isOfOtherScheme(r, t.scheme)
}

// isOfOtherScheme reports whether a client has asked in the absolute form for a URI that it did not come by: what a handler
// makes of that, a redirect say, is not for those who did.
func isOfOtherScheme(r *http.Request, scheme string) bool {
	absolute := r.RequestURI != "" && !strings.HasPrefix(r.RequestURI, "/")
	return absolute && r.URL.Scheme != scheme
}

// isRewritten reports whether a middleware outside has made another URL of what stood in the request line. One that takes a
// prefix from it, as [http.StripPrefix] does, has not: there the line says more.
func isRewritten(r *http.Request) bool {
	now := r.URL.RequestURI()
	if strings.HasSuffix(r.RequestURI, now) {
		return false
	}
	sent, err := url.ParseRequestURI(r.RequestURI) // it may be written in a way that a URL does not keep
	return err != nil || !strings.HasSuffix(sent.RequestURI(), now)
}

// normal returns the target with a host that is written in one way.
func (t target) normal() (target, bool) {
	port := ":80"
	if t.scheme == "https" {
		port = ":443"
	}
	t.host = strings.TrimSuffix(strings.ToLower(t.host), port)
	return t, t.host != "" && strings.HasPrefix(t.uri, "/")
}

// targetAt returns the target of a URL, or an error when it is none.
func targetAt(raw string) (target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return target{}, err
	}
	scheme := strings.ToLower(u.Scheme)
	if scheme != "http" && scheme != "https" {
		return target{}, errors.New("middleware: purge of " + raw + `: a URL with "http" or "https" is needed`)
	}
	t, ok := target{scheme, u.Host, u.RequestURI()}.normal()
	if !ok {
		return target{}, errors.New("middleware: purge of " + raw + ": it has no host or no path")
	}
	return t, nil
}

// origin is what URIs of one server have in common.
func (t target) origin() string { return t.scheme + "://" + t.host }

// key is that of the target's page, or index, for a method.
func (t target) key(method string) string {
	return "{" + digest(t.scheme, t.host, t.uri) + "}" + method
}

// keys are all keys of the target by which its pages are found.
func (t target) keys() []string { return []string{t.key(http.MethodGet), t.key(http.MethodHead)} }

// digest tells one list of strings from every other.
func digest(parts ...string) string {
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
