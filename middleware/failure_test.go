package middleware

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Two hundred clients ask for what always fails: each gets a failure with its body (cache-handler#25: 200 without one).
func TestAlways500(t *testing.T) {
	for _, control := range []string{"", "max-age=60"} { // the latter is an error that says it may be kept
		t.Run(control, func(t *testing.T) {
			var m meter
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
				defer m.run()()
				if control != "" {
					w.Header().Set("Cache-Control", control)
				}
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = fmt.Fprint(w, "sorry")
			})
			const clients = 200
			for _, r := range crowd(clients, func(int) reply { return f.get("/") }) {
				r.want(t, 500, "sorry")
				if strings.Contains(r.header.Get("Cache-Status"), "unsettled") {
					t.Error("a client waited again and again")
				}
			}
			f.get("/").want(t, 500, "sorry")
			switch runs := m.runs.Load(); {
			case control == "" && (runs <= 2 || runs > clients+1), control != "" && runs != 1:
				t.Errorf("%d runs", runs)
			}
		})
	}
}

// The first run fails, while two hundred wait.
func TestFirst500(t *testing.T) {
	var m meter
	begun, end := make(chan struct{}), make(chan struct{})
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		defer m.run()()
		if m.runs.Load() == 1 {
			close(begun)
			<-end
			http.Error(w, "sorry", http.StatusBadGateway)
			return
		}
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = fmt.Fprint(w, "a page")
	})
	first := make(chan reply, 1)
	go func() { first <- f.get("/") }()
	await(t, "the first run begins", begun)
	others := make(chan []reply, 1)
	go func() { others <- crowd(200, func(int) reply { return f.get("/") }) }()
	f.awaitArrivals(t, 201)
	close(end)
	await(t, "the first client has its answer", first).want(t, 502, "sorry\n")
	for _, r := range await(t, "the others have theirs", others) {
		r.want(t, 200, "a page")
	}
	if m.runs.Load() != 2 || m.peak.Load() != 1 {
		t.Errorf("%d runs, up to %d at once, want 2, one by one", m.runs.Load(), m.peak.Load())
	}
}

// The context of a shared run ends at RunTimeout, and what the handler makes of that is not stored.
func TestRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unserved(t, redistest.Fake(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = fmt.Fprint(w, "half ")
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
				_, _ = fmt.Fprint(w, "and half")
			}
		}, func(o *Options) { o.RunTimeout, o.RedisTimeout = 4*time.Second, 0 })
		for range 2 {
			begun := time.Now()
			record(f.handler, request(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).want(t, 200, "half ")
			if took := time.Since(begun); took != 4*time.Second {
				t.Errorf("it took %v", took)
			}
			time.Sleep(time.Second) // then a failed run may be repeated at once
		}
	})
}

// A handler that hangs, and hears of the end of its context or not.
func TestHang(t *testing.T) {
	for name, hears := range map[string]bool{"hears": true, "deaf": false} {
		t.Run(name, func(t *testing.T) {
			var m meter
			free := make(chan struct{})
			begun := make(chan struct{}, 100)
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
				defer m.run()()
				w.Header().Set("Cache-Control", "max-age=60")
				begun <- struct{}{}
				done := r.Context().Done()
				if !hears {
					done = nil
				}
				select {
				case <-done:
					w.Header().Del("Cache-Control")
					w.WriteHeader(http.StatusGatewayTimeout)
				case <-free:
					_, _ = fmt.Fprint(w, "a page")
				}
			}, func(o *Options) {
				o.RunTimeout, o.WaitTimeout = 300*time.Millisecond, 100*time.Millisecond
			})
			first := make(chan reply, 1)
			go func() { first <- f.get("/") }()
			await(t, "the run begins", begun)
			waiters := make(chan []reply, 1)
			go func() { waiters <- crowd(20, func(int) reply { return f.get("/") }) }()
			await(t, "a waiter runs the handler itself", begun)
			if r := await(t, "the first client has its answer", first); r.status != http.StatusGatewayTimeout {
				t.Errorf("the first client got %d %q (error %v), want 504", r.status, r.body, r.err)
			}
			close(free)
			pages := 0
			for _, r := range await(t, "the waiters have theirs", waiters) {
				switch {
				case r.status == 200 && r.body == "a page":
					pages++
				case r.status == 503 && r.header.Get("Retry-After") != "":
				default:
					t.Errorf("a waiter got %d %q (error %v)", r.status, r.body, r.err)
				}
			}
			// One is the turn's, the other the shared run's.
			if pages == 0 || m.peak.Load() > 2 {
				t.Errorf("%d waiters got the page, with up to %d runs at once", pages, m.peak.Load())
			}
		})
	}
}

// A Content-Length that is not the body's: clients must notice, and nothing of it is stored.
func TestWrongContentLength(t *testing.T) {
	for name, length := range map[string]string{"too short": "3", "too long": "30"} {
		t.Run(name, func(t *testing.T) {
			var m meter
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
				defer m.run()()
				w.Header().Set("Cache-Control", "max-age=60")
				if m.runs.Load() < 3 {
					w.Header().Set("Content-Length", length)
				}
				for _, part := range []string{"a ", "page"} {
					_, _ = io.Copy(w, strings.NewReader(part)) // a proxy does not notice either
				}
			})
			for range 2 {
				if r := f.get("/"); r.err == nil {
					t.Errorf("got %d %q, and no error", r.status, r.body)
				}
			}
			// The mark of two failures does not outlast a good answer.
			for range 2 {
				f.get("/").want(t, 200, "a page")
			}
			f.get("/").want(t, 200, "a page")
			if m.runs.Load() != 4 {
				t.Errorf("%d runs, want 4: two that were wrong, one that cleared the mark, and one that was stored", m.runs.Load())
			}
		})
	}
}

// A goroutine of the handler that is late writes to nobody.
func TestWritesAfterReturn(t *testing.T) {
	for name, late := range map[string]func(http.ResponseWriter){
		"write":   func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "more") },
		"much":    func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 2<<20)) },
		"from":    func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 2<<20))) },
		"flush":   func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"status":  func(w http.ResponseWriter) { w.WriteHeader(500) },
		"field":   func(w http.ResponseWriter) { w.Header().Set("Late", "yes") },
		"hijack":  func(w http.ResponseWriter) { _, _, _ = http.NewResponseController(w).Hijack() },
		"interim": func(w http.ResponseWriter) { w.WriteHeader(103) },
	} {
		for how, body := range map[string]string{"shared": "a page", "streamed": strings.Repeat("much ", 1<<18)} {
			t.Run(name+"/"+how, func(t *testing.T) {
				kept := make(chan http.ResponseWriter, 1)
				f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					_, _ = fmt.Fprint(w, body)
					select {
					case kept <- w:
					default:
					}
				})
				f.get("/").want(t, 200, body)
				redistest.Eventually(t, soon, "the middleware is done", func() bool { return f.left.Load() == 1 })
				late(<-kept)
				r := f.get("/")
				if r.want(t, 200, body); r.header.Get("Late") != "" {
					t.Error("a field was set after the end")
				}
			})
		}
	}
}
