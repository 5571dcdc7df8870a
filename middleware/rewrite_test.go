package middleware

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// What an outer handler makes of the URL may depend on who asks: such pages are not shared.
func TestRewrittenURL(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, r.URL.Path)
	})
	ask := func(user, path string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/home?a=%62", nil)
		r.URL.Path, r.URL.RawPath = path, ""
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		want(t, "page of "+user, w.Body.String(), path)
	}
	for range 2 {
		ask("1", "/users/1/home")
		ask("2", "/users/2/home")
	}
	wantRuns(t, s, 4)
	ask("everyone", "/home")
	ask("everyone", "/home")
	wantRuns(t, s, 5)
}

func TestIsRewritten(t *testing.T) {
	for _, c := range []struct {
		uri       string
		path, raw string
		query     string
		is        bool
	}{
		{"/a", "/a", "", "", false},
		{"/a%2Fb/%C3%BC|ü?x=|", "/a/b/ü|ü", "/a%2Fb/%C3%BC|ü", "x=|", false},
		{"//a", "//a", "", "", false},
		{"/prefix/a?b", "/a", "", "b", false},
		{"/prefix", "", "", "", false},
		{"/a", "/b/a", "", "", true},
		{"/a", "/b", "", "", true},
		{"/a?b", "/a", "", "c", true},
		{"/a?b", "/a", "", "", true},
		{"", "/a", "", "", false},                   // no server made it
		{"http://a.example/b", "/a", "", "", false}, // the key is that of /a
	} {
		r := &http.Request{RequestURI: c.uri, URL: &url.URL{Path: c.path, RawPath: c.raw, RawQuery: c.query}}
		want(t, c.uri+" as "+c.path, isRewritten(r), c.is)
	}
}
