package middleware

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// site is a handler behind a middleware, asked without a network: it works in bubbles.
type site struct {
	t       testing.TB
	mw      *Middleware
	handler http.Handler
	runs    *atomic.Int64 // of the handler
}

// newSite puts a handler behind a middleware of its own.
func newSite(t testing.TB, rdb redis.UniversalClient, route Route, serve http.HandlerFunc) *site {
	t.Helper()
	mw, err := New(rdb, Options{Prefix: "test", Route: route})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mw.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &site{t: t, mw: mw, runs: new(atomic.Int64)}
	s.handler = mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		serve(w, r)
	}))
	return s
}

// do asks for a path, with fields like "Name: value".
func (s *site) do(method, path string, fields ...string) *httptest.ResponseRecorder {
	return s.doFor(context.Background(), method, path, fields...)
}

func (s *site) doFor(ctx context.Context, method, path string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "http://host"+path, nil)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
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
