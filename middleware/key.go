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
	if !strings.HasPrefix(t.uri, "/") { // absolute, or of a request that no server made
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

// isRewritten reports whether an outer handler has made another URL of the one that the key is made of, by who asks perhaps.
// To take a prefix off, as [http.StripPrefix] does, is not meant.
func isRewritten(r *http.Request) bool {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return false // then the key is made of the URL itself
	}
	asked, err := url.ParseRequestURI(r.RequestURI)
	return err != nil || !strings.HasSuffix(asked.Path, r.URL.Path) || asked.RawQuery != r.URL.RawQuery
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

// targetsAt returns the targets of a URL: the one that it spells, and the one that clients send for it which encode what a
// URL should not have, if that is another. The error says why it is none.
func targetsAt(raw string) ([]target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("middleware: purge of " + raw + `: a URL with "http" or "https" is needed`)
	}
	encoded, ok := target{u.Scheme, u.Host, u.RequestURI()}.normal()
	if !ok {
		return nil, errors.New("middleware: purge of " + raw + ": it has no host or no path")
	}
	targets := []target{encoded}
	if spelt := spelling(raw); strings.HasPrefix(spelt, "/") && spelt != encoded.uri {
		targets = append(targets, target{encoded.scheme, encoded.host, spelt})
	}
	return targets, nil
}

// spelling is the path and query of a URL as they stand there.
func spelling(raw string) string {
	_, rest, _ := strings.Cut(raw, "//")
	rest, _, _ = strings.Cut(rest, "#")
	return rest[min(strings.IndexAny(rest+"/", "/?"), len(rest)):]
}

// keysAt are all keys of the targets of a URL.
func keysAt(raw string) ([]string, error) {
	targets, err := targetsAt(raw)
	var keys []string
	for _, t := range targets {
		keys = append(keys, t.keys()...)
	}
	return keys, err
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
