package middleware

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// soon is for how long a test waits for what happens at once.
const soon = 10 * time.Second

// front is a server whose pages go through a middleware.
type front struct {
	*httptest.Server
	mw      *Middleware
	arrived atomic.Int64 // requests
	left    atomic.Int64 // requests whose context has ended
	handler http.Handler // what the server serves
}

// newFront starts a server. It counts requests before they come to the middleware.
func newFront(t testing.TB, rdb redis.UniversalClient, h http.HandlerFunc, change ...func(*Options)) *front {
	t.Helper()
	f := unserved(t, rdb, h, change...)
	f.serve(t)
	return f
}

// serve starts the server.
func (f *front) serve(t testing.TB) {
	t.Helper()
	f.Server = httptest.NewServer(f.handler)
	t.Cleanup(f.Close)
	f.manyClients()
}

// unserved is a front whose server is still to be started.
func unserved(t testing.TB, rdb redis.UniversalClient, h http.HandlerFunc, change ...func(*Options)) *front {
	t.Helper()
	opts := Options{Prefix: "adversity", RedisTimeout: 5 * time.Second} // slow machines are no outage
	for _, c := range change {
		c(&opts)
	}
	mw, err := New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mw.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &front{mw: mw}
	inner := mw.Handler(h)
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.arrived.Add(1)
		context.AfterFunc(r.Context(), func() { f.left.Add(1) })
		inner.ServeHTTP(w, r)
	})
	return f
}

// manyClients lets the client keep a connection for each of them, and asks for no encoding.
func (f *front) manyClients() {
	transport := f.Client().Transport.(*http.Transport)
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 300, true
	f.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
}

// awaitArrivals waits until so many requests have come.
func (f *front) awaitArrivals(t testing.TB, n int) {
	t.Helper()
	redistest.Eventually(t, soon, fmt.Sprint(n, " requests arrive"), func() bool { return f.arrived.Load() >= int64(n) })
}

// reply is what a client got.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// get asks for a path, with pairs of a field's name and value.
func (f *front) get(path string, fields ...string) reply {
	return f.send(context.Background(), http.MethodGet, path, fields...)
}

func (f *front) send(ctx context.Context, method, path string, fields ...string) reply {
	req, err := http.NewRequestWithContext(ctx, method, f.URL+path, nil)
	if err != nil {
		return reply{err: err}
	}
	req.Host = "example.com" // on every instance
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	res, err := f.Client().Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(body), err}
}

// leaving sends a request whose client leaves when the returned function is called. That returns when the middleware's
// part in it is over, too.
func (f *front) leaving(t testing.TB, path string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	before := f.left.Load()
	done := make(chan reply, 1)
	go func() { done <- f.send(ctx, http.MethodGet, path) }()
	return func() {
		t.Helper()
		cancel()
		if r := await(t, "the client leaves", done); r.err == nil {
			t.Errorf("the client that was to leave got %d %q", r.status, r.body)
		}
		redistest.Eventually(t, soon, "the server sees that the client has left", func() bool { return f.left.Load() > before })
	}
}

// want checks what a client got.
func (r reply) want(t testing.TB, status int, body string) {
	t.Helper()
	if r.err != nil || r.status != status || r.body != body {
		t.Errorf("got %d %.80q (%d B, error %v), want %d %.80q", r.status, r.body, len(r.body), r.err, status, body)
	}
}

// crowd calls f for 0 to n-1 at once and returns what each call did when all have.
func crowd[R any](n int, f func(i int) R) []R {
	results := make([]R, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { results[i] = f(i) })
	}
	wg.Wait()
	return results
}

// meter counts runs of a handler.
type meter struct{ runs, now, peak atomic.Int64 }

// run is to be called at the beginning of a run, and what it returns at its end.
func (m *meter) run() func() {
	m.runs.Add(1)
	now := m.now.Add(1)
	for peak := m.peak.Load(); now > peak && !m.peak.CompareAndSwap(peak, now); peak = m.peak.Load() {
	}
	return func() { m.now.Add(-1) }
}

// await receives from a channel that something is to be sent to, or that is to be closed, soon.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		t.Fatalf("not within %v: %s", soon, what)
		panic("unreachable")
	}
}

// request is one as a server reads it.
func request(t testing.TB, raw string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return r.WithContext(t.Context())
}

// record is what a handler answers without a server.
func record(h http.Handler, r *http.Request) reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return reply{w.Code, w.Result().Header, w.Body.String(), nil}
}
