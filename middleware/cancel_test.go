package middleware

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Two hundred clients, each of which may leave at any moment. Who stays gets the body of its URL, byte by byte
// (souin#703: two bodies in one).
func TestClientsLeaveAtRandom(t *testing.T) {
	body := func(n string) string { return strings.Repeat(n+".", 20_000) }
	for name, control := range map[string]string{"shared": "max-age=60", "not shared": "private"} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", control)
				page := body(r.URL.RawQuery)
				for len(page) > 0 { // in pieces, so that clients leave between them
					n := min(len(page), 10_000)
					_, _ = w.Write([]byte(page[:n]))
					page = page[n:]
				}
			}, func(o *Options) { o.HitForMiss = time.Millisecond }) // so that there is much to wait for
			for round := range 4 {
				stayed := 0
				for i, r := range crowd(200, func(i int) reply {
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					if rand.N(2) == 0 {
						timer := time.AfterFunc(rand.N(30*time.Millisecond), leave)
						defer timer.Stop()
					}
					return f.send(ctx, http.MethodGet, fmt.Sprintf("/?%d-%d", round, i%25))
				}) {
					if r.err == nil {
						stayed++
						r.want(t, 200, body(fmt.Sprintf("%d-%d", round, i%25)))
					}
				}
				if stayed < 50 {
					t.Errorf("%d clients were answered, too few to tell", stayed)
				}
			}
			for i := range 25 {
				f.get(fmt.Sprintf("/?0-%d", i)).want(t, 200, body(fmt.Sprintf("0-%d", i)))
			}
		})
	}
}

// The client whose request started the run leaves half way: the run is not only its own.
func TestFirstClientLeaves(t *testing.T) {
	for _, waiters := range []int{0, 50} {
		t.Run(fmt.Sprint(waiters, " wait"), func(t *testing.T) {
			var m meter
			begun, end := make(chan struct{}), make(chan struct{})
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
				defer m.run()()
				w.Header().Set("Cache-Control", "max-age=60")
				_, _ = fmt.Fprint(w, "half ")
				close(begun)
				select {
				case <-end:
					_, _ = fmt.Fprint(w, "and half")
				case <-r.Context().Done():
				}
			})
			leave := f.leaving(t, "/")
			await(t, "the run begins", begun)
			others := make(chan []reply, 1)
			go func() { others <- crowd(waiters, func(int) reply { return f.get("/") }) }()
			f.awaitArrivals(t, 1+waiters)
			leave()
			close(end)
			for _, r := range await(t, "the others have their answer", others) {
				r.want(t, 200, "half and half")
			}
			f.get("/").want(t, 200, "half and half") // with nobody waiting it joins the run, or meets what it stored
			if m.runs.Load() != 1 {
				t.Errorf("%d runs, want 1", m.runs.Load())
			}
		})
	}
}

// What streams is its client's alone, and so is its run.
func TestClientLeavesAStream(t *testing.T) {
	ended := make(chan error, 1)
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = fmt.Fprint(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
	})
	res, err := f.Client().Get(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 5)
	if _, err := res.Body.Read(first); err != nil || string(first) != "first" {
		t.Errorf("got %q, error %v", first, err)
	}
	_ = res.Body.Close()
	if err := await(t, "the context of the run ends", ended); err == nil {
		t.Error("it has no cause")
	}
}

// A middleware outside may end the context of a request whose client is still there, and leave the answer to the handler.
// An empty 200 is no answer.
func TestContextEndsWithTheClientThere(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	f := unserved(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		close(begun)
		<-end
		_, _ = fmt.Fprint(w, "a page")
	})
	inner := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
		defer cancel()
		if r.Header.Get("Patient") == "" {
			r = r.WithContext(ctx)
		}
		inner.ServeHTTP(w, r)
	})
	f.serve(t)
	first := make(chan reply, 1)
	go func() { first <- f.get("/") }()
	await(t, "the run begins", begun)
	second := f.get("/")
	for _, r := range []reply{await(t, "the first client has its answer", first), second} {
		if r.err != nil || r.status != http.StatusGatewayTimeout || r.body == "" || r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %q (error %v) %v, want a 504 that says so", r.status, r.body, r.err, r.header)
		}
	}
	close(end)
	f.get("/", "Patient", "yes").want(t, 200, "a page")
}

// The client leaves, and in that moment its run turns out not to be for others.
func TestClientLeavesAsTheRunStreams(t *testing.T) {
	for name, settle := range map[string]func(*run){
		"not shared": func(r *run) { r.unshared("private", nil) },
		"failed":     func(r *run) { r.unshared("", statusError(500)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := unserved(t, redistest.Fake(t).Client(t), nil)
			ctx, leave := context.WithCancel(t.Context())
			leave()
			f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				v := &visit{m: f.mw, route: &f.mw.route, w: w, r: r}
				run := v.newRun(false)
				run.begin()
				run.take()
				settle(run)
				v.lead(run, entry{}, context.Canceled)
			})
			record(f.handler, request(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").WithContext(ctx))
		})
	}
}
