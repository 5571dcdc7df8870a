package bus

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const channel = "ns:wake"

func newBus(t *testing.T, rdb redis.UniversalClient) *Bus {
	b := New(rdb, channel, Events{})
	t.Cleanup(b.Close)
	return b
}

func becomesLive(t *testing.T, b *Bus) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, "the bus is live", b.Live)
}

// waiters registers waiters and returns when the bus is live and none of them is signalled.
func waiters(t *testing.T, b *Bus, names ...string) []*Waiter {
	t.Helper()
	var list []*Waiter
	for _, name := range names {
		list = append(list, b.Wait(name))
	}
	wakes(t, list[0])
	if !b.Live() { // it waits until all are signalled, too
		t.Error("not live after a waiter was signalled")
	}
	for _, w := range list[1:] {
		select {
		case <-w.C:
		default: // registered when the bus was live
		}
	}
	return list
}

func publish(t *testing.T, rdb redis.UniversalClient, message string) {
	t.Helper()
	if err := rdb.Publish(t.Context(), channel, message).Err(); err != nil {
		t.Fatal(err)
	}
}

func wakes(t *testing.T, w *Waiter) {
	t.Helper()
	select {
	case <-w.C:
	case <-time.After(10 * time.Second):
		t.Fatalf("waiter of %q was not woken", w.name)
	}
}

func sleepsOn(t *testing.T, w *Waiter) {
	t.Helper()
	select {
	case <-w.C:
		t.Errorf("waiter of %q was woken", w.name)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestMessageWakesTheWaitersOfItsName(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		list := waiters(t, b, "k", "k", "kk")
		mine, also, other := list[0], list[1], list[2]
		publish(t, rdb, "wk")
		wakes(t, mine)
		wakes(t, also)
		publish(t, rdb, "ioriginxxk")
		wakes(t, mine)
		publish(t, rdb, "")
		publish(t, rdb, "w")
		publish(t, rdb, "wunknown")
		sleepsOn(t, other)
	})
}

func TestWaitersRegisteredTogetherShareASignal(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		b.Start()
		becomesLive(t, b)
		list, some := b.RegisterAll([]string{"a", "b", "c"})
		list[2].Stop()
		for _, name := range []string{"c", "b"} { // in this order, so that c's would have come
			publish(t, rdb, "w"+name)
		}
		wakes(t, &Waiter{C: some, name: "any"})
		wakes(t, list[1])
		sleepsOn(t, list[0])
		sleepsOn(t, list[2])
		sleepsOn(t, &Waiter{C: some, name: "any"})

		publish(t, rdb, "wb")
		wakes(t, &Waiter{C: some, name: "any"})
		others := b.Regroup(list[1:2]) // its signal is not read yet
		wakes(t, &Waiter{C: others, name: "any other"})
		publish(t, rdb, "wa")
		wakes(t, &Waiter{C: some, name: "any"})
		sleepsOn(t, &Waiter{C: others, name: "any other"})
		publish(t, rdb, "wb")
		wakes(t, &Waiter{C: others, name: "any other"})
		sleepsOn(t, &Waiter{C: some, name: "any"})
	})
}

func TestSignalsNobodyReadAreOne(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		list := waiters(t, b, "k", "last")
		w, last := list[0], list[1]
		for range 3 {
			publish(t, rdb, "wk")
		}
		publish(t, rdb, "wlast")
		wakes(t, last)
		wakes(t, w)
		sleepsOn(t, w)
	})
}

func TestStopUnregisters(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		list := waiters(t, b, "k", "k")
		a, z := list[0], list[1]
		a.Stop()
		a.Stop()
		publish(t, rdb, "wk")
		wakes(t, z)
		sleepsOn(t, a)
		z.Stop()
		if len(b.waiters) != 0 {
			t.Errorf("%d names are left", len(b.waiters))
		}
	})
}

// A message that comes while waiters come and go is heard by those who stay.
func TestWaitersComeAndGo(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		stays := b.Wait("k")
		wakes(t, stays)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				b.Wait("k").Stop()
			}
		}()
		for range 20 {
			publish(t, rdb, "wk")
			wakes(t, stays)
		}
		<-done
		if n := len(b.waiters["k"]); n != 1 {
			t.Errorf("%d waiters are left, want 1", n)
		}
	})
}
