package stockade

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestStaleValuesAreServedWhileOneProcessRefreshes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var caches []*Cache[string]
		for range 4 {
			caches = append(caches, open[string](t, s.Client(t), func(o *Options) { o.TTL = 100 * time.Millisecond; o.StaleFor = time.Hour }))
		}
		if err := caches[0].Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		o := &origin[string]{load: func(context.Context) (string, error) { time.Sleep(50 * time.Millisecond); return "new", nil }}
		var wg sync.WaitGroup
		for _, c := range caches {
			for range 20 {
				wg.Go(func() {
					e, err := c.Fetch(t.Context(), "k", func(ctx context.Context, old *Entry[string]) (Entry[string], error) {
						v, err := o.Load(ctx)
						return Entry[string]{Value: v, TTL: time.Hour}, err
					})
					if err != nil || e.Value != "old" || e.Source != Stale || e.Age < 150*time.Millisecond {
						t.Errorf("got %+v, %v", e, err)
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(100 * time.Millisecond)
		for _, c := range caches {
			if e, err := c.Lookup(t.Context(), "k"); err != nil || e.Value != "new" || e.Source != Hit {
				t.Errorf("after the refresh: got %+v, %v", e, err)
			}
		}
		wantLoads(t, o, 1)
	})
}

func TestAFailedRefreshIsNoErrorAndBacksOff(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var failures atomic.Int64
		c := open[string](t, s.Client(t), func(o *Options) {
			o.TTL, o.StaleFor, o.FailureBackoff = 50*time.Millisecond, 2*time.Second, time.Minute
			o.Observer.Refresh = func(e RefreshEvent) {
				if errors.Is(e.Err, errSource) {
					failures.Add(1)
				}
			}
		})
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		o := fails(0, errSource)
		for range 40 {
			if v, err := c.Get(t.Context(), "k", o.Load); v != "v" || err != nil {
				t.Fatalf("got %q, %v", v, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		wantLoads(t, o, 1)
		want(t, "failures told", failures.Load(), 1)
		time.Sleep(2 * time.Second)
		var failed *LoadError
		if _, err := c.Get(t.Context(), "k", o.Load); !errors.As(err, &failed) || !failed.Remote {
			t.Errorf("past StaleFor: got %v", err)
		}
	})
}

// Hits on a stale key must not ask again and again while another process holds its lease.
func TestStaleHitsDoNotKeepAsking(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		c := open[string](t, rdb, func(o *Options) { o.TTL = 50 * time.Millisecond; o.StaleFor = time.Hour })
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		var e sight
		err := c.view.look(t.Context(), "k", false, &e)
		if err != nil || e.state != stale {
			t.Fatalf("%v, %v", e.state, err)
		}
		crashAt(t, s, c, "k", e.seen())
		before := faults.Count("evalsha")
		begun := time.Now()
		for time.Since(begun) < 500*time.Millisecond {
			if v, err := c.Get(t.Context(), "k", returns("new").Load); v != "v" || err != nil {
				t.Fatalf("got %q, %v", v, err)
			}
			time.Sleep(time.Millisecond)
		}
		if asked := faults.Count("evalsha") - before; asked > 4 {
			t.Errorf("asked %d times in 500 ms", asked)
		}
	})
}

func TestExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		soft := c.With(Policy{StaleFor: time.Hour})
		for key, view := range map[string]*Cache[string]{"soft": soft, "hard": c} {
			if err := view.Set(t.Context(), key, "v"); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Expire(t.Context(), "soft", "hard", "none"); err != nil {
			t.Fatal(err)
		}
		if e, err := c.Lookup(t.Context(), "soft"); err != nil || e.Source != Stale {
			t.Errorf("soft: got %+v, %v", e, err)
		}
		if e, err := c.Lookup(t.Context(), "hard"); !errors.Is(err, ErrMiss) {
			t.Errorf("hard: got %+v, %v", e, err)
		}
		o := returns("new")
		if v, err := c.Get(t.Context(), "soft", o.Load); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		for o.loads.Load() == 0 || c.Stats().Flights > 0 {
			time.Sleep(time.Millisecond)
		}
		if v, err := c.Get(t.Context(), "soft", o.Load); v != "new" || err != nil {
			t.Errorf("after the refresh: got %q, %v", v, err)
		}
	})
}

func TestFetchRevalidates(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.TTL = 100 * time.Millisecond; o.KeepFor = time.Hour })
		full := 0
		load := func(_ context.Context, old *Entry[string]) (Entry[string], error) {
			if old != nil {
				if old.ETag != "e1" || old.Value != "v" {
					t.Errorf("old is %+v", old)
				}
				return Entry[string]{TTL: 200 * time.Millisecond}, ErrNotModified
			}
			full++
			return Entry[string]{Value: "v", ETag: "e1"}, nil
		}
		for i, pause := range []time.Duration{150, 150, 100, 0} {
			e, err := c.Fetch(t.Context(), "k", load)
			if err != nil || e.Value != "v" || e.ETag != "e1" {
				t.Fatalf("%d: got %+v, %v", i, e, err)
			}
			want(t, fmt.Sprint("source ", i), e.Source, []Source{Loaded, Loaded, Hit, Loaded}[i])
			time.Sleep(pause * time.Millisecond)
		}
		want(t, "full loads", full, 1)
		want(t, "loads", c.Stats().Loads, 3)
		if _, err := c.Get(t.Context(), "other", fails(0, ErrNotModified).Load); !errors.Is(err, ErrNotModified) {
			t.Errorf("from Get: got %v", err)
		}
		_, err := c.Fetch(t.Context(), "another", func(context.Context, *Entry[string]) (Entry[string], error) { return Entry[string]{}, ErrNotModified })
		var failed *LoadError
		if !errors.As(err, &failed) {
			t.Errorf("without an old value: got %v", err)
		}
	})
}

func TestNoStoreLeavesWhatIsKept(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.TTL = 50 * time.Millisecond; o.KeepFor = time.Hour })
		if err := c.Set(t.Context(), "k", "kept"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		for range 2 {
			e, err := c.Fetch(t.Context(), "k", func(_ context.Context, old *Entry[string]) (Entry[string], error) {
				if old == nil || old.Value != "kept" {
					t.Errorf("old is %+v", old)
				}
				return Entry[string]{Value: "once", NoStore: true}, nil
			})
			if err != nil || e.Value != "once" {
				t.Errorf("got %+v, %v", e, err)
			}
			want(t, "leases", leases(t, s), 0)
		}
	})
}

func TestAnEntryWithAWrongLifetimeIsRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		for i, e := range []Entry[string]{{TTL: -1}, {TTL: 1}, {StaleFor: 999 * time.Microsecond}, {KeepFor: 1 << 62}} {
			_, err := c.Fetch(t.Context(), fmt.Sprint(i), func(context.Context, *Entry[string]) (Entry[string], error) { return e, nil })
			if err == nil {
				t.Errorf("%+v was taken", e)
			}
			if err := c.SetEntry(t.Context(), fmt.Sprint(i), e); err == nil {
				t.Errorf("%+v was set", e)
			}
			if _, err := c.Lookup(t.Context(), fmt.Sprint(i)); !errors.Is(err, ErrMiss) {
				t.Errorf("%+v: got %v", e, err)
			}
		}
		want(t, "leases", leases(t, s), 0)
	})
}

func TestEarlyRefresh(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		// A load that took a second, a second before its expiry: about two of three reads elect.
		c := open[string](t, s.Client(t), func(o *Options) { o.EarlyRefresh = 1; o.TTL = 1500 * time.Millisecond })
		slow := func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil }
		if _, err := c.Get(t.Context(), "k", slow); err != nil {
			t.Fatal(err)
		}
		o := returns("new")
		for range 20 {
			if v, err := c.Get(t.Context(), "k", o.Load); v != "v" || err != nil {
				t.Fatalf("in the first half: got %q, %v", v, err)
			}
		}
		wantLoads(t, o, 0)
		time.Sleep(time.Second)
		for range 20 {
			if _, err := c.Get(t.Context(), "k", o.Load); err != nil {
				t.Fatal(err)
			}
		}
		redistest.Eventually(t, time.Second, "one refresh", func() bool { return o.loads.Load() > 0 && c.Stats().Flights == 0 })
		wantLoads(t, o, 1)
		want(t, "refreshes", c.Stats().Refreshes, 1)
	})
}

// I11: nothing is served that began to load longer than TTL + StaleFor + the load ago, however often it is expired or
// its refresh fails.
func TestStalenessIsBounded(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const ttl, staleFor, took = 200 * time.Millisecond, 300 * time.Millisecond, 100 * time.Millisecond
		c := open[string](t, s.Client(t), func(o *Options) { o.TTL, o.StaleFor, o.FailureBackoff = ttl, staleFor, 50*time.Millisecond })
		loaded := time.Now()
		if _, err := c.Get(t.Context(), "k", fails(took, nil).Load); err != nil {
			t.Fatal(err)
		}
		last := time.Duration(0)
		for time.Since(loaded) < ttl+staleFor+took+300*time.Millisecond {
			asked := time.Since(loaded)
			e, err := c.Fetch(t.Context(), "k", func(context.Context, *Entry[string]) (Entry[string], error) { return Entry[string]{}, errSource })
			if err == nil {
				last = asked
				if e.Age > ttl+staleFor+took+10*time.Millisecond {
					t.Errorf("an age of %v", e.Age)
				}
			}
			time.Sleep(5 * time.Millisecond)
			if err := c.Expire(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		// The time between two questions is the test's own, not the cache's.
		if last > ttl+staleFor+took+100*time.Millisecond || last < staleFor {
			t.Errorf("served for %v", last)
		}
	})
}
