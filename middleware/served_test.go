package middleware

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// served is a handler behind a middleware, on a Redis of its own.
type served struct {
	http.Handler
	mw   *Middleware
	runs atomic.Int64 // of the handler
}

// serve returns the served of a handler. It is closed when the test ends.
func serve(t testing.TB, handler http.HandlerFunc, change ...func(*Options)) *served {
	t.Helper()
	opts := Options{Prefix: "test"}
	for _, f := range change {
		f(&opts)
	}
	mw, err := New(redistest.Fake(t).Client(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mw.Close() })
	s := &served{mw: mw}
	s.Handler = mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		handler(w, r)
	}))
	return s
}

// get sends GET with fields, each "Name: value".
func (s *served) get(url string, fields ...string) *http.Response {
	return s.send(http.MethodGet, url, fields...)
}

func (s *served) send(method, url string, fields ...string) *http.Response {
	r := httptest.NewRequest(method, url, nil)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
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

func wantRuns(t testing.TB, s *served, want int64) {
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
