package middleware

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// keyOf is the key of a request as a server reads it from the wire.
func keyOf(t testing.TB, m *Middleware, raw string, secure bool) (string, bool) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Skip(err)
	}
	if secure {
		r.TLS = &tls.ConnectionState{}
	}
	if isRewritten(r) {
		t.Errorf("%q counts as rewritten", raw)
	}
	target, ok := m.targetOf(r)
	return target.key(r.Method), ok
}

func wire(line, host string) string { return line + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }

func bare(opts Options) *Middleware { return &Middleware{shared: &shared{opts: opts}} }

// Requests have one key when they are for one URI, byte by byte, and its Purge finds it.
func TestTargetOf(t *testing.T) {
	for _, c := range []struct {
		what   string
		scheme string // of the options
		secure bool
		wire   string
		url    string
	}{
		{"plain", "", false, wire("GET /a?b=c", "a.example"), "http://a.example/a?b=c"},
		{"TLS", "", true, wire("GET /a", "a.example"), "https://a.example/a"},
		{"TLS ends before the server", "https", false, wire("GET /a", "a.example"), "https://a.example/a"},
		{"the scheme that clients use", "http", true, wire("GET /a", "a.example"), "http://a.example/a"},
		{"the host's case", "", false, wire("GET /", "A.Example"), "HTTP://a.eXAMPLE/"},
		{"the default port", "", false, wire("GET /", "a.example:80"), "http://a.example/"},
		{"the default port in the URL", "", false, wire("GET /", "a.example"), "http://a.example:80/"},
		{"the default port of TLS", "", true, wire("GET /", "a.example:443"), "https://a.example/"},
		{"another's default port", "", true, wire("GET /", "a.example:80"), "https://a.example:80/"},
		{"a port", "", false, wire("GET /", "a.example:8080"), "http://a.example:8080/"},
		{"IPv6", "", false, wire("GET /", "[::1]:80"), "http://[::1]/"},
		{"absolute form", "", false, wire("GET http://a.example/a?b", "other.example"), "http://a.example/a?b"},
		{"absolute form without a path", "", false, wire("GET http://a.example", "other.example"), "http://a.example"},
		{"no path", "", false, wire("GET /", "a.example"), "http://a.example"},
		{"no path, a query", "", false, wire("GET /?a", "a.example"), "http://a.example?a"},
		{"an empty query", "", false, wire("GET /a?", "a.example"), "http://a.example/a?"},
		{"a fragment is the client's", "", false, wire("GET /a", "a.example"), "http://a.example/a#part"},
		{"userinfo is the client's", "", false, wire("GET /a", "a.example"), "http://me:x@a.example/a"},
		{"encoded", "", false, wire("GET /%61/a%2Fb%20c", "a.example"), "http://a.example/%61/a%2Fb%20c"},
		{"what a browser sends for ü", "", false, wire("GET /%C3%BC", "a.example"), "http://a.example/ü"},
		{"ü as it is", "", false, wire("GET /ü", "a.example"), "http://a.example/ü"},
		{"signs as they are", "", false, wire("GET /a|b^[c]{d}\"e", "a.example"), "http://a.example/a|b^[c]{d}\"e"},
		{"signs in the query", "", false, wire("GET /a?x=|ü&y={}", "a.example"), "http://a.example/a?x=|ü&y={}"},
		{"two slashes", "", false, wire("GET //a//b", "a.example"), "http://a.example//a//b"},
		{"dots", "", false, wire("GET /a/../b/./", "a.example"), "http://a.example/a/../b/./"},
	} {
		key, ok := keyOf(t, bare(Options{Scheme: c.scheme}), c.wire, c.secure)
		want(t, c.what+": has a key", ok, true)
		targets, err := targetsAt(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		found := false
		for _, target := range targets {
			found = found || target.key(http.MethodGet) == key
		}
		if !found {
			t.Errorf("%s: %q is not of %+v", c.what, c.wire, targets)
		}
	}
}

func TestTargetsDiffer(t *testing.T) {
	m := bare(Options{})
	of := map[string]string{}
	for _, wire := range []string{
		wire("GET /", "a.example"), wire("HEAD /", "a.example"), wire("GET /", "b.example"), wire("GET /", "a.example:8080"), wire("GET /", "a.example:443"),
		wire("GET /a", "a.example"), wire("GET /A", "a.example"), wire("GET /a/", "a.example"), wire("GET //a", "a.example"), wire("GET /%61", "a.example"),
		wire("GET /a?", "a.example"), wire("GET /a?b", "a.example"), wire("GET /a?b=", "a.example"), wire("GET /a?b&c", "a.example"), wire("GET /a?c&b", "a.example"),
		wire("GET /a%3Fb", "a.example"), wire("GET /a%2Fb", "a.example"), wire("GET /a/b", "a.example"), wire("GET /a%2fb", "a.example"), wire("GET /a+b", "a.example"),
		wire("GET /a%20b", "a.example"), wire("GET /b/../a", "a.example"),
	} {
		key, ok := keyOf(t, m, wire, false)
		if other := of[key]; !ok || other != "" {
			t.Errorf("%q has the key of %q", wire, other)
		}
		of[key] = wire
	}
	plain, _ := keyOf(t, m, wire("GET /", "a.example"), false)
	if secure, _ := keyOf(t, m, wire("GET /", "a.example"), true); secure == plain {
		t.Error("http and https share a key")
	}
}

// What has no host or no path is not shared.
func TestNoTarget(t *testing.T) {
	m := bare(Options{})
	for _, wire := range []string{"GET /a HTTP/1.0\r\n\r\n", wire("OPTIONS *", "a.example")} {
		if _, ok := keyOf(t, m, wire, false); ok {
			t.Errorf("%q has a key", wire)
		}
	}
	for _, url := range []string{"", "/a", "a.example/a", "//a.example/a", "http://", "http:///a", "http:a", "mailto:a@a.example", "ftp://a.example/a", "http://a.example/%zz", "http://a b/"} {
		if targets, err := targetsAt(url); err == nil || url != "" && !strings.Contains(err.Error(), url) {
			t.Errorf("%q: got %v, %v, want an error that names it", url, targets, err)
		}
	}
}

// A request that no server has made has the same key.
func TestTargetOfMadeRequest(t *testing.T) {
	m := bare(Options{})
	served, _ := keyOf(t, m, wire("GET /a%2Fb?c", "a.example"), false)
	r, err := http.NewRequest(http.MethodGet, "http://a.example/a%2Fb?c", nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, r := range map[string]*http.Request{"NewRequest": r, "httptest": httptest.NewRequest(http.MethodGet, "http://a.example/a%2Fb?c", nil)} {
		target, ok := m.targetOf(r)
		want(t, what+": has a key", ok, true)
		want(t, what, target.key(r.Method), served)
	}
}

// All keys of a URI share a slot of a cluster: they have one hash tag.
func TestKeysShareSlot(t *testing.T) {
	targets, err := targetsAt("http://a.example/{a}?{}")
	if err != nil {
		t.Fatal(err)
	}
	keys := append(targets[0].keys(), targets[0].key("GET")+(&visit{route: &Route{}, r: &http.Request{}}).variantSuffix(&index{Generation: newGeneration(), Vary: []string{"Accept"}}))
	want(t, "keys", len(keys), 3)
	tag, _, _ := strings.Cut(keys[0], "}")
	for i, key := range keys {
		if got, _, ok := strings.Cut(key, "}"); !ok || got != tag || !strings.HasPrefix(got, "{") || len(got) < 2 || strings.Count(key, "{") != 1 {
			t.Errorf("%q is not in the slot of %q", key, keys[0])
		}
		for _, other := range keys[:i] {
			if other == key {
				t.Errorf("two keys are %q", key)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	at := target{"http", "a.example", "/dir/page?x"}
	for reference, uri := range map[string]string{
		"/b?c": "/b?c", "b": "/dir/b", "?y": "/dir/page?y", "../b": "/b", "http://A.example:80/b": "/b", "//a.example/b": "/b",
		"": "", "https://a.example/b": "", "http://b.example/b": "", "http://a.example:81/b": "", "mailto:x": "", "http://%zz/": "",
	} {
		other, ok := at.resolve(reference)
		want(t, reference+": of this server", ok, uri != "")
		if ok {
			want(t, reference, other, target{"http", "a.example", uri})
		}
	}
}

// FuzzTarget: targets share a digest only when they are equal.
func FuzzTarget(f *testing.F) {
	f.Add("http", "a.example", "/a", "http", "a.example/", "a")
	f.Add("http", "a", "b", "httpa", "", "b")
	f.Add("", "", "\x00", "", "\x00", "")
	f.Fuzz(func(t *testing.T, scheme, host, uri, scheme2, host2, uri2 string) {
		a, b := target{scheme, host, uri}, target{scheme2, host2, uri2}
		for i, key := range a.keys() {
			if same := key == b.keys()[i]; same != (a == b) {
				t.Errorf("%+v and %+v: same key %v", a, b, same)
			}
		}
		a, ok := a.normal()
		if again, _ := a.normal(); ok && !strings.HasSuffix(a.host, ":80") && !strings.HasSuffix(a.host, ":443") && again != a {
			t.Errorf("%+v is not normal: %+v", a, again)
		}
	})
}

// FuzzPurge: the URL of any request that a server reads purges its key.
func FuzzPurge(f *testing.F) {
	for _, uri := range []string{"/", "/a?b", "//a", "/%zz", "/a|b", "/ü?ü", "/a#b", "/a?#", "/a;b=c", "/\\", "/%2F", "/a b"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if !strings.HasPrefix(uri, "/") || strings.ContainsAny(uri, " \r\n#") { // no origin-form, which clients send
			return
		}
		key, ok := keyOf(t, bare(Options{}), wire("GET "+uri, "a.example"), false)
		targets, err := targetsAt("http://a.example" + uri)
		if !ok || err != nil {
			t.Fatalf("%q: %v, %v", uri, ok, err)
		}
		for _, target := range targets {
			if target.key(http.MethodGet) == key {
				return
			}
		}
		t.Errorf("%q is not of %+v", uri, targets)
	})
}
