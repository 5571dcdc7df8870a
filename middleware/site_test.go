package middleware

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// site is a handler behind a middleware, asked without a network: it works in bubbles.
type site struct {
	http.Handler
	t    testing.TB
	mw   *Middleware
	runs atomic.Int64 // of the handler
}

// newSite puts a handler behind a middleware of its own, for a route.
func newSite(t testing.TB, rdb redis.UniversalClient, route Route, handler http.HandlerFunc) *site {
	t.Helper()
	return open(t, rdb, Options{Prefix: "test", Route: route}, handler)
}

// serve is newSite on a fake Redis.
func serve(t testing.TB, handler http.HandlerFunc, change ...func(*Options)) *site {
	t.Helper()
	opts := Options{Prefix: "test"}
	for _, f := range change {
		f(&opts)
	}
	return open(t, redistest.Fake(t).Client(t), opts, handler)
}

func open(t testing.TB, rdb redis.UniversalClient, opts Options, handler http.HandlerFunc) *site {
	t.Helper()
	mw, err := New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mw.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &site{t: t, mw: mw}
	s.Handler = mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		handler(w, r)
	}))
	return s
}

// do asks for a path, with fields like "Name: value".
func (s *site) do(method, path string, fields ...string) *httptest.ResponseRecorder {
	return s.doFor(context.Background(), method, path, fields...)
}

func (s *site) doFor(ctx context.Context, method, path string, fields ...string) *httptest.ResponseRecorder {
	return s.record(ctx, method, "http://host"+path, fields...)
}

// get asks for a URL and returns what a client would see.
func (s *site) get(url string, fields ...string) *http.Response {
	return s.send(http.MethodGet, url, fields...)
}

func (s *site) send(method, url string, fields ...string) *http.Response {
	return s.record(context.Background(), method, url, fields...).Result()
}

func (s *site) record(ctx context.Context, method, url string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, url, nil)
	for name, values := range header(fields...) {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// wantBody asks with GET and expects a body.
func (s *site) wantBody(want, path string, fields ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	w := s.do(http.MethodGet, path, fields...)
	if got := w.Body.String(); got != want {
		s.t.Errorf("%s %v: got %q (%s), want %q", path, fields, got, w.Header().Get("Cache-Status"), want)
	}
	return w
}

// wantRuns expects how often the handler has run since it was last asked.
func (s *site) wantRuns(what string, want int64) {
	s.t.Helper()
	if got := s.runs.Swap(0); got != want {
		s.t.Errorf("%s: the handler ran %d times, want %d", what, got, want)
	}
}

// answers is a handler that always says the same. Each of fields is "Name: value".
func answers(body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header(fields...) {
			w.Header()[name] = values
		}
		_, _ = io.WriteString(w, body)
	}
}

// header has fields, each "Name: value".
func header(fields ...string) http.Header {
	h := http.Header{}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		h.Add(name, value)
	}
	return h
}

func bodyOf(t testing.TB, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func wantRuns(t testing.TB, s *site, want int64) {
	t.Helper()
	if got := s.runs.Load(); got != want {
		t.Errorf("the handler ran %d times, want %d", got, want)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
