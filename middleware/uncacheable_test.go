package middleware

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// gated is a handler whose runs wait until they are let go.
type gated struct {
	meter
	control atomic.Value // Cache-Control
	gates   chan chan struct{}
}

func newGated(control string) *gated {
	g := &gated{gates: make(chan chan struct{}, 1000)}
	g.control.Store(control)
	return g
}

func (g *gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer g.run()()
	gate := make(chan struct{})
	g.gates <- gate
	<-gate
	w.Header().Set("Cache-Control", g.control.Load().(string))
	_, _ = fmt.Fprint(w, "for ", r.Header.Get("Client"))
}

func (g *gated) await(t testing.TB, n int) {
	t.Helper()
	redistest.Eventually(t, soon, fmt.Sprintf("%d runs at once", n), func() bool { return len(g.gates) >= n })
}

// letGo waits until n runs are there at once, and lets them go.
func (g *gated) letGo(t testing.TB, n int) {
	t.Helper()
	g.await(t, n)
	for range n {
		close(<-g.gates)
	}
}

// burst has clients ask at once; each wants an answer of its own.
func burst(t testing.TB, f *front, clients int) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, r := range crowd(clients, func(i int) reply { return f.get("/", "Client", fmt.Sprint(i)) }) {
			r.want(t, 200, fmt.Sprint("for ", i))
		}
	}()
	return done
}

// Two hundred clients ask for what cannot be shared (varnish#2978): the first burst takes the time of two handlers, later
// ones of one. Once it can be shared, it is.
func TestUncacheable(t *testing.T) {
	for _, control := range []string{"private, max-age=60", "no-store, max-age=60", "max-age=0", ""} {
		t.Run(control, func(t *testing.T) {
			const clients = 200
			g := newGated(control)
			f := newFront(t, redistest.Real(t).Client(t), g.ServeHTTP)
			first := burst(t, f, clients)
			f.awaitArrivals(t, clients)
			g.await(t, 1)
			if g.runs.Load() != 1 {
				t.Errorf("%d runs before it was known that they cannot be shared", g.runs.Load())
			}
			g.letGo(t, 1)
			g.letGo(t, clients-1)
			await(t, "the first burst is over", first)
			for range 2 {
				next := burst(t, f, clients)
				g.letGo(t, clients)
				await(t, "a later burst is over", next)
			}
			if runs := g.runs.Load(); runs != 3*clients {
				t.Errorf("%d runs for three bursts", runs)
			}
			g.control.Store("max-age=60")
			for _, runs := range []int{1, 1, 0} { // one answers past the mark, one is stored
				next := make(chan reply, 1)
				go func() { next <- f.get("/", "Client", "last") }()
				g.letGo(t, runs)
				await(t, "an answer", next).want(t, 200, "for last")
			}
		})
	}
}

// A page that is not for all of a burst, since its Vary tells them apart, is made once for each kind of client.
func TestBurstOfVariants(t *testing.T) {
	for _, instances := range []int{1, 2} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			const clients, kinds = 200, 4
			server := redistest.Real(t)
			var m meter
			all := make(chan struct{})
			fs := make([]*front, instances)
			for i := range fs {
				fs[i] = newFront(t, server.Client(t), func(w http.ResponseWriter, r *http.Request) {
					defer m.run()()
					<-all
					w.Header().Set("Cache-Control", "max-age=60")
					w.Header().Set("Vary", "X-Kind")
					_, _ = fmt.Fprint(w, "for ", r.Header.Get("X-Kind"))
				})
			}
			done := make(chan []reply, 1)
			go func() {
				done <- crowd(clients, func(i int) reply { return fs[i%instances].get("/", "X-Kind", fmt.Sprint(i/instances%kinds)) })
			}()
			for _, f := range fs {
				f.awaitArrivals(t, clients/instances)
			}
			close(all)
			for i, r := range await(t, "the burst is over", done) {
				r.want(t, 200, fmt.Sprint("for ", i/instances%kinds))
			}
			if m.runs.Load() != kinds {
				t.Errorf("%d runs for %d kinds of clients", m.runs.Load(), kinds)
			}
		})
	}
}

// Of a stampede on two instances one run comes, and it writes one value (gin-cache#1: each who waits writes).
func TestOneWriteForAStampede(t *testing.T) {
	server := redistest.NewReal(t, "--notify-keyspace-events", "E$")
	var m meter
	all := make(chan struct{})
	var fs [2]*front
	for i := range fs {
		fs[i] = newFront(t, server.Client(t), func(w http.ResponseWriter, _ *http.Request) {
			defer m.run()()
			<-all
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = fmt.Fprint(w, "a page")
		})
	}
	rdb := server.Client(t)
	sub := rdb.Subscribe(t.Context(), "__keyevent@0__:set")
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	const clients = 200
	done := make(chan []reply, 1)
	go func() { done <- crowd(clients, func(i int) reply { return fs[i%2].get("/") }) }()
	for _, f := range fs {
		f.awaitArrivals(t, clients/2)
	}
	close(all)
	for _, r := range await(t, "the stampede is over", done) {
		r.want(t, 200, "a page")
	}
	if err := rdb.Set(t.Context(), "last", "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	writes := map[string]int{}
	for msg := await(t, "a write", sub.Channel()); msg.Payload != "last"; msg = await(t, "a write", sub.Channel()) {
		if !strings.Contains(msg.Payload, ":T:l:") { // a lease
			writes[msg.Payload]++
		}
	}
	if m.runs.Load() != 1 || len(writes) != 1 {
		t.Errorf("%d runs, and writes %v, want one of each", m.runs.Load(), writes)
	}
}
