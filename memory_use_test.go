//go:build !race

// What a hit and a waiter take of memory. The race detector takes some of its own.

package stockade

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A hit allocates at most three objects more than the client's own Get.
func TestHitAllocations(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	c := open[[]byte](t, rdb)
	ctx := context.Background()
	value := make([]byte, 1024)
	if err := c.Set(ctx, "k", value); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(ctx, "raw", value, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	load := func(context.Context) ([]byte, error) { return nil, errSource }
	names := []string{"k", "raw"} // no constants: those need no allocation to be sent
	ours := testing.AllocsPerRun(1000, func() {
		if _, err := c.Get(ctx, names[0], load); err != nil {
			t.Fatal(err)
		}
	})
	raw := testing.AllocsPerRun(1000, func() {
		if _, err := rdb.Get(ctx, names[1]).Bytes(); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("Get %.1f, client's Get %.1f", ours, raw)
	if ours > raw+3 {
		t.Errorf("a hit allocates %.1f objects, the client's own Get %.1f", ours, raw)
	}
}

// A hit allocates nothing more, in the local tier and from Redis, when misses are traced.
func TestATracedHitAllocatesNothingMore(t *testing.T) {
	s := redistest.Real(t)
	ctx := context.Background()
	load := func(context.Context) ([]byte, error) { return nil, errSource }
	hits := func(name string, change ...func(*Options)) float64 {
		c := open[[]byte](t, s.Client(t), append(change, func(o *Options) { o.Prefix, o.TTL = name, time.Hour })...)
		if err := c.Set(ctx, "k", make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		get := func() {
			if _, err := c.Get(ctx, "k", load); err != nil {
				t.Fatal(err)
			}
		}
		if c.view.local != nil {
			get()
			redistest.Eventually(t, 10*time.Second, "changes are heard of", c.view.local.live.Load)
			get()
		}
		return testing.AllocsPerRun(2000, get)
	}
	traced := func(o *Options) { o.Observer.Trace = new(tracer).trace }
	for name, c := range map[string]struct{ without, with float64 }{
		"redis": {hits("r"), hits("rt", traced)},
		"local": {hits("l", withLocal), hits("lt", withLocal, traced)},
	} {
		t.Logf("%s: %.1f without, %.1f with", name, c.without, c.with)
		if c.with > c.without {
			t.Errorf("%s: a hit allocates %.1f objects when misses are traced, else %.1f", name, c.with, c.without)
		}
	}
}

// Waiters of one key cost their process no goroutine each beyond the caller's own, and little memory: their stacks stay at
// 4 KiB, though they have asked Redis first, and have some frames of their caller's on them.
func TestManyWaitersOfOneKey(t *testing.T) {
	s := redistest.Real(t)
	holder, c := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	const callers = 10_000
	finish := make(chan struct{})
	slow := func(context.Context) (string, error) { <-finish; return "v", nil }
	var wg sync.WaitGroup
	get := func(c *Cache[string]) {
		var frames [512]byte
		if v, err := c.Get(t.Context(), "k", slow); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		runtime.KeepAlive(&frames)
	}
	wg.Go(func() { get(holder) })
	redistest.Eventually(t, 5*time.Second, "it loads", func() bool { return holder.Stats().Loading == 1 })
	start := make(chan struct{})
	for range callers {
		wg.Go(func() { <-start; get(c) })
	}
	heap, _, goroutines := measure() // the callers' own goroutines included
	close(start)
	redistest.Eventually(t, 20*time.Second, "all wait", func() bool { return c.Stats().Misses == callers })
	time.Sleep(100 * time.Millisecond)
	heap2, stacks, goroutines2 := measure()
	each := float64(heap2-heap) / callers
	t.Logf("%.0f B of heap and %d B of stack for each waiter", each, stacks/callers)
	if stacks/callers > 5000 {
		t.Errorf("%d B of stack for each waiter", stacks/callers)
	}
	if each > 800 {
		t.Errorf("%.0f B of heap for each waiter", each)
	}
	if more := goroutines2 - goroutines; more > 10 {
		t.Errorf("%d goroutines beyond the callers' own", more)
	}
	close(finish)
	wg.Wait()
	want(t, "loads", holder.Stats().Loads+c.Stats().Loads, 1)
}

// measure returns the bytes that are in use on the heap and for stacks, and the number of goroutines.
func measure() (heap, stacks int64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse), runtime.NumGoroutine()
}
