package stockade

import (
	"math"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I1: a caller does not get the result of a load that began before a write which was acknowledged, elsewhere, before
// the caller came. Numbers tell which was first; a clock that stands still would not.
func TestNoJoiningOfAnOlderLoad(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error { return joinOlderLoad(t, s, false) })
}

func joinOlderLoad(t *testing.T, s redistest.Server, clock bool) error {
	a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	if clock {
		a.view.seq.Store(a.view.filling.get("k").start.Load() - 1) // the next number is that of the load's instant
	}
	late := make(chan result)
	go func() { late <- getNow(a, "k", "new") }()
	time.Sleep(settle)
	if err := expect("who came before", p.finish(Entry[string]{Value: "old"}, nil), "old"); err != nil {
		return err
	}
	return expect("who came after", <-late, "new")
}

// I1: the same for a process that has lost Redis, while another has not.
func TestNoJoiningOfAnOlderLocalLoad(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error {
		proxy := redistest.NewProxy(t, s)
		a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
		proxy.Freeze()
		defer proxy.Thaw()
		p := get(a, "k")
		<-p.began
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			return err
		}
		late := make(chan result)
		go func() { late <- getNow(a, "k", "new") }()
		time.Sleep(settle)
		p.finish(Entry[string]{Value: "old", NoStore: true}, nil)
		return expect("who came after", <-late, "new")
	})
}

// I1: a hit does not come from a trip that had left before the caller came.
func TestNoHitOfATripThatHasLeft(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error { return hitOfATripThatHasLeft(t, s, false) })
}

func hitOfATripThatHasLeft(t *testing.T, s redistest.Server, unchecked bool) error {
	proxy := redistest.NewProxy(t, s)
	a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
	if err := expect("first", getNow(a, "k", "old"), "old"); err != nil {
		return err
	}
	proxy.Delay(5 * settle)
	early, late := make(chan result, 1), make(chan result, 1)
	go func() { early <- getNow(a, "k", "?") }()
	time.Sleep(settle)
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	if unchecked {
		n := a.view.nodes.single
		n.mu.Lock()
		for f := range n.out {
			f.trip.number = math.MaxUint64 // as if it had not left yet
		}
		n.mu.Unlock()
	}
	go func() { late <- getNow(a, "k", "new") }()
	time.Sleep(settle)
	proxy.Delay(0)
	if err := expect("who came before", <-early, "old"); err != nil {
		return err
	}
	return expect("who came after", <-late, "new")
}
