package middleware

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"reflect"
	"runtime"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

type brokenError struct{ error }

// exits are how a handler may end but by returning, and what the client's goroutine is to panic with.
var exits = map[string]struct {
	how  func()
	want any
}{
	"error":        {func() { panic(io.ErrUnexpectedEOF) }, io.ErrUnexpectedEOF},
	"string":       {func() { panic("no") }, "no"},
	"abort":        {func() { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
	"slice":        {func() { panic([]int{1}) }, []int{1}},
	"nil":          {func() { panic(nil) }, new(runtime.PanicNilError)}, //nolint:govet // it is what is tested
	"nil error":    {func() { panic((*brokenError)(nil)) }, (*brokenError)(nil)},
	"Goexit":       {runtime.Goexit, http.ErrAbortHandler},
	"after a half": {func() { panic("half") }, "half"},
}

// recovering tells what comes up to a middleware outside, and lets the connection end.
func (f *front) recovering() <-chan any {
	recovered := make(chan any, 1000)
	inner := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				recovered <- v
				panic(http.ErrAbortHandler)
			}
		}()
		inner.ServeHTTP(w, r)
	})
	return recovered
}

// The first run ends badly while thirty wait for it.
func TestPanicIsTheFirstClientsAlone(t *testing.T) {
	for name, exit := range exits {
		t.Run(name, func(t *testing.T) {
			var m meter
			begun, end := make(chan struct{}), make(chan struct{})
			f := unserved(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
				defer m.run()()
				w.Header().Set("Cache-Control", "max-age=60")
				if m.runs.Load() == 1 {
					close(begun)
					<-end
					_, _ = fmt.Fprint(w, "half of ")
					exit.how()
				}
				_, _ = fmt.Fprint(w, "a page")
			})
			recovered := f.recovering()
			f.serve(t)
			first := make(chan reply, 1)
			go func() { first <- f.get("/") }()
			await(t, "the first run begins", begun)
			others := make(chan []reply, 1)
			go func() { others <- crowd(30, func(int) reply { return f.get("/") }) }()
			f.awaitArrivals(t, 31)
			close(end)
			if r := await(t, "the first client has its answer", first); r.err == nil {
				t.Errorf("the first client got %d %q", r.status, r.body)
			}
			for _, r := range await(t, "the others have theirs", others) {
				r.want(t, 200, "a page")
			}
			f.get("/").want(t, 200, "a page")
			if m.runs.Load() != 2 || m.peak.Load() != 1 {
				t.Errorf("%d runs, up to %d at once, want 2, one by one", m.runs.Load(), m.peak.Load())
			}
			if got := await(t, "the panic comes up", recovered); !reflect.DeepEqual(got, exit.want) {
				t.Errorf("a middleware outside recovered %T %v, want %T %v", got, got, exit.want, exit.want)
			}
			if len(recovered) > 0 {
				t.Errorf("another client's goroutine panicked too: %v", <-recovered)
			}
		})
	}
}

// A handler that always panics: after two runs nobody waits for another, and nothing is stored.
func TestPanicEachTime(t *testing.T) {
	var m meter
	healed := make(chan struct{})
	f := unserved(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		defer m.run()()
		w.Header().Set("Cache-Control", "max-age=60")
		select {
		case <-healed:
			_, _ = fmt.Fprint(w, "a page")
		default:
			panic(errors.New("always"))
		}
	})
	f.recovering()
	f.serve(t)
	const clients = 30
	for _, r := range crowd(clients, func(int) reply { return f.get("/") }) {
		if r.err == nil {
			t.Errorf("a client got %d %q", r.status, r.body)
		}
	}
	if m.runs.Load() > clients {
		t.Errorf("%d runs for %d clients", m.runs.Load(), clients)
	}
	close(healed)
	for _, r := range crowd(clients, func(int) reply { return f.get("/") }) {
		r.want(t, 200, "a page")
	}
}

// What panics when the client has left is told to the server's log; the key is free.
func TestPanicOfARunThatNobodyWaitsFor(t *testing.T) {
	begun, end, logged := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	var m meter
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		defer m.run()()
		w.Header().Set("Cache-Control", "max-age=60")
		if m.runs.Load() == 1 {
			close(begun)
			<-end
			panic("alone")
		}
		_, _ = fmt.Fprint(w, "a page")
	}, func(o *Options) { o.Prefix = "alone" })
	f.Config.ErrorLog = log.New(writerFunc(func(p []byte) { logged <- string(p) }), "", 0)
	leave := f.leaving(t, "/")
	await(t, "the run begins", begun)
	leave()
	close(end)
	if got := await(t, "the panic is logged", logged); len(got) == 0 {
		t.Error("nothing is logged")
	}
	f.get("/").want(t, 200, "a page")
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
