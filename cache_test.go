package stockade

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestGetLoadsOnceAndThenHits(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		c := open[string](t, rdb)
		o := returns("v")
		for i := range 3 {
			got, err := c.Get(t.Context(), "k", o.Load)
			if err != nil || got != "v" {
				t.Fatalf("Get %d: got %q, %v", i, got, err)
			}
		}
		wantLoads(t, o, 1)
		want(t, "hits", c.Stats().Hits, 2)
		want(t, "gets", faults.Count("get"), 3)
	})
}

func TestOneLoadInTheFleet(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const instances, callers = 4, 50
		o := &origin[string]{load: func(context.Context) (string, error) { time.Sleep(100 * time.Millisecond); return "v", nil }}
		var wg sync.WaitGroup
		for range instances {
			c := open[string](t, s.Client(t))
			for range callers {
				wg.Go(func() {
					if got, err := c.Get(t.Context(), "k", o.Load); err != nil || got != "v" {
						t.Errorf("got %q, %v", got, err)
					}
				})
			}
		}
		wg.Wait()
		wantLoads(t, o, 1)
	})
}

// Keys that are loaded at once have nothing of each other's, also when they share a slot of a cluster.
func TestKeysDoNotShareALoad(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const keys = 50
		var loads [2 * keys]atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			c := open[string](t, s.Client(t), unhurried)
			for i := range 2 * keys {
				key := fmt.Sprint(i)
				if i >= keys {
					key = "{slot}" + key
				}
				wg.Go(func() {
					v, err := c.Get(t.Context(), key, func(context.Context) (string, error) {
						loads[i].Add(1)
						time.Sleep(testLoad)
						return "v of " + key, nil
					})
					if v != "v of "+key || err != nil {
						t.Errorf("%s: got %q, %v", key, v, err)
					}
				})
			}
		}
		wg.Wait()
		for i := range loads {
			want(t, fmt.Sprint("loads of key ", i), loads[i].Load(), 1)
		}
	})
}

// I1: what began to load before an acknowledged Invalidate is neither stored nor returned after it.
func TestInvalidateBeatsTheLoadInFlight(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
		began, finish := make(chan struct{}), make(chan struct{})
		slow := func(context.Context) (string, error) { close(began); <-finish; return "old", nil }
		done := make(chan error)
		go func() {
			v, err := a.Get(t.Context(), "k", slow)
			if err == nil && v != "old" {
				err = fmt.Errorf("got %q", v)
			}
			done <- err
		}()
		<-began
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Cache[string]{b, a} {
			if got, err := c.Get(t.Context(), "k", returns("new").Load); err != nil || got != "new" {
				t.Errorf("after Invalidate: got %q, %v", got, err)
			}
		}
		close(finish)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if e, err := a.Lookup(t.Context(), "k"); err != nil || e.Value != "new" {
			t.Errorf("stored: got %q, %v", e.Value, err)
		}
		want(t, "rejected", a.Stats().Rejected, 1)
	})
}
