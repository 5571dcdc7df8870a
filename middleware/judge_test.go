package middleware

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// RFC 9111 5.2.1: what clients ask for counts where the route says so.
func TestClientControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := answers("page", "Cache-Control: max-age=60")
		trusting := serve(t, page, func(o *Options) { o.ClientControl = true })
		other := serve(t, page)
		for _, s := range []*site{trusting, other} {
			s.get("http://a.example/")
		}
		time.Sleep(10 * time.Second)
		for _, c := range []struct {
			fields string // separated by "|"
			refuse bool
		}{
			{"", false},
			{"Cache-Control: no-cache", true},
			{"Pragma: no-cache", true},
			{"Pragma: no-cache|Cache-Control: max-age=60", false}, // 5.4
			{"Cache-Control: max-age=0", true},
			{"Cache-Control: max-age=60", false},
			{"Cache-Control: min-fresh=40", false},
			{"Cache-Control: min-fresh=61", true},
			{"Cache-Control: max-stale=5", false},
		} {
			for s, runs := range map[*site]bool{trusting: c.refuse, other: false} {
				before := s.runs.Load()
				r := s.get("http://a.example/", strings.Split(c.fields, "|")...)
				want(t, c.fields+": body", bodyOf(t, r), "page")
				want(t, c.fields+": ran", s.runs.Load() > before, runs)
			}
		}
	})
}

func TestOnlyIfCached(t *testing.T) {
	s := serve(t, answers("page", "Cache-Control: max-age=60"), func(o *Options) { o.ClientControl = true })
	r := s.get("http://a.example/", "Cache-Control: only-if-cached")
	want(t, "status of a miss", r.StatusCode, http.StatusGatewayTimeout)
	r = s.get("http://a.example/", "Cache-Control: only-if-cached, no-store", "Range: bytes=0-1")
	want(t, "status of a miss, for a part", r.StatusCode, http.StatusGatewayTimeout)
	wantRuns(t, s, 0)
	s.get("http://a.example/")
	w := httptest.NewRecorder()
	q := httptest.NewRequest(http.MethodGet, "http://a.example/", nil)
	q.Header.Set("Cache-Control", "only-if-cached")
	s.ServeHTTP(w, q)
	want(t, "status of a hit", w.Code, 200)
	want(t, "body of a hit", w.Body.String(), "page") // once
	want(t, "members of Cache-Status", len(w.Result().Header["Cache-Status"]), 1)
	wantRuns(t, s, 1)
}

// RFC 9111 5.2.1.5: a request with no-store gets what is stored, and its own response is not.
func TestRequestNoStore(t *testing.T) {
	s := serve(t, answers("page", "Cache-Control: max-age=60"))
	for range 2 {
		r := s.get("http://a.example/", "Cache-Control: no-store")
		want(t, "Cache-Status", r.Header.Get("Cache-Status"), "stockade; fwd=request; fwd-status=200; detail=no-store")
	}
	wantRuns(t, s, 2)
	s.get("http://a.example/")
	s.get("http://a.example/", "Cache-Control: no-store")
	wantRuns(t, s, 3)
}

// What a request has to do with the cache.
func TestBypass(t *testing.T) {
	tenant := func(r *http.Request) (string, bool) { return "t", r.Header.Get("Tenant") != "" }
	for _, c := range []struct {
		route  Route
		fields []string
		reason string
	}{
		{Route{}, nil, ""},
		{Route{}, []string{"Authorization: Basic x"}, "authorization"},
		{Route{}, []string{"Authorization: "}, "authorization"},
		{Route{Authorization: true}, []string{"Authorization: Basic x"}, ""},
		{Route{}, []string{"Upgrade: websocket", "Connection: upgrade"}, "upgrade"},
		{Route{}, []string{"Cookie: a=b"}, "cookie"},
		{Route{Cookies: []string{}}, []string{"Cookie: a=b"}, ""},
		{Route{Cookies: []string{"a"}}, []string{"Cookie: a=b"}, ""},
		{Route{Key: tenant}, []string{"Cookie: a=b", "Tenant: x"}, ""},
		{Route{Key: tenant}, nil, "key"},
		{Route{Key: tenant}, []string{"Tenant: x", "Authorization: Basic x"}, "authorization"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = header(c.fields...)
		v := &visit{route: &c.route, r: r}
		want(t, strings.Join(c.fields, ", "), v.bypass(), c.reason)
	}
	v := &visit{route: &Route{}, r: httptest.NewRequest(http.MethodGet, "/", strings.NewReader("x"))}
	want(t, "with a body", v.bypass(), "body")
	v = &visit{route: &Route{}, r: httptest.NewRequest(http.MethodGet, "/", struct{ *strings.Reader }{})}
	want(t, "with a body of unknown length", v.bypass(), "body")
}

// What answers HEAD in place of the handler has no body, and says how long it would be (RFC 9110 9.3.2).
func TestRefusedHead(t *testing.T) {
	s := serve(t, answers("page"), func(o *Options) { o.ClientControl = true })
	get, head := s.do("GET", "/", "Cache-Control: only-if-cached"), s.do("HEAD", "/", "Cache-Control: only-if-cached")
	want(t, "status", head.Code, 504)
	want(t, "body", head.Body.String(), "")
	want(t, "Content-Length", head.Header().Get("Content-Length"), strconv.Itoa(get.Body.Len()))
}
