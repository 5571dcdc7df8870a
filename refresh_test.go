package stockade

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Refreshes of many keys take a quarter of MaxLoads together. What finds no place is skipped: it does not wait for one.
func TestRefreshesOfManyKeysAreCapped(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const loads, keys = 16, 40
		c := open[string](t, s.Client(t), unhurried, func(o *Options) { o.MaxLoads, o.TTL, o.StaleFor = loads, settle, time.Hour })
		for k := range keys {
			if err := c.Set(t.Context(), fmt.Sprint(k), "old"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * settle)
		finish := make(chan struct{})
		end := sync.OnceFunc(func() { close(finish) })
		defer end() // before the cache is closed, which waits for its loaders
		o := &origin[string]{load: func(context.Context) (string, error) { <-finish; return "new", nil }}
		for range 3 {
			for k := range keys {
				if v, err := c.Get(t.Context(), fmt.Sprint(k), o.Load); v != "old" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			}
			redistest.Eventually(t, time.Second, "refreshes", func() bool { return c.Stats().Loading > 0 })
			time.Sleep(settle)
		}
		want(t, "refreshes at once", c.Stats().Loading, loads/4)
		if v, err := c.Get(t.Context(), "another", returns("v").Load); v != "v" || err != nil {
			t.Errorf("another key: got %q, %v", v, err)
		}
		end()
		redistest.Eventually(t, time.Second, "all have ended", func() bool { return c.Stats().Flights == 0 })
		wantLoads(t, o, loads/4)
	})
}

// A refresh may end in any way: the next one comes all the same, and what it loads is stored.
func TestTheRefreshAfterAFailedOne(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		for name, fail := range map[string]func(caller, ctx context.Context) error{
			"error":                func(context.Context, context.Context) error { return errSource },
			"panic":                func(context.Context, context.Context) error { panic("boom") },
			"exit":                 func(context.Context, context.Context) error { runtime.Goexit(); return nil },
			"time-out":             func(_, ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			"the caller's context": func(caller, _ context.Context) error { return caller.Err() },
		} {
			c := open[string](t, s.Client(t), unhurried, func(o *Options) {
				o.TTL, o.StaleFor, o.LoadTimeout, o.FailureBackoff = settle, time.Hour, 10*settle, settle
			})
			if err := c.Set(t.Context(), name, "old"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * settle)
			first := true
			load := func(caller context.Context) EntryLoader[string] {
				return func(ctx context.Context, _ *Entry[string]) (Entry[string], error) {
					e := Entry[string]{Value: "new", TTL: time.Hour}
					if first { // one load at a time
						first = false
						<-caller.Done()
						return e, fail(caller, ctx)
					}
					return e, nil
				}
			}
			caller, leave := context.WithCancel(t.Context())
			if e, err := c.Fetch(caller, name, load(caller)); e.Value != "old" || err != nil {
				t.Errorf("%s: got %q, %v", name, e.Value, err)
			}
			leave()
			redistest.Eventually(t, 5*time.Second, "a value after: "+name, func() bool {
				e, err := c.Fetch(t.Context(), name, load(caller))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return e.Value == "new" && e.Source == Hit
			})
		}
	})
}

// I7: a refresh of which nothing came, without a failure that the fleet is told of, is not repeated by every stale hit.
func TestARefreshOfWhichNothingCame(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const backoff = 100 * time.Millisecond
		gone, leave := context.WithCancel(t.Context())
		leave()
		for name, end := range map[string]result{
			"its caller's context has ended": {err: gone.Err()}, "not to be stored": {value: Entry[string]{NoStore: true}},
		} {
			c := open[string](t, s.Client(t), unhurried, func(o *Options) { o.TTL, o.StaleFor, o.FailureBackoff = settle, time.Hour, backoff })
			if err := c.Set(t.Context(), name, "old"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * settle)
			var loads atomic.Int64
			begun := time.Now()
			for time.Since(begun) < 5*backoff {
				e, err := c.Fetch(t.Context(), name, func(context.Context, *Entry[string]) (Entry[string], error) {
					loads.Add(1)
					return end.value, end.err
				})
				if e.Value != "old" || e.Source != Stale || err != nil {
					t.Errorf("%s: got %+v, %v", name, e, err)
				}
				time.Sleep(time.Millisecond)
			}
			if n, most := loads.Load(), int64(time.Since(begun)/backoff)+1; n > most || n == 0 {
				t.Errorf("%s: %d loads, want %d at most", name, n, most)
			}
			redistest.Eventually(t, time.Second, "a new value", func() bool { return getNow(c, name, "new").value.Value == "new" })
		}
	})
}

// I11: a refresh that hangs does not make a stale value last, though it is kept, nor the key unusable.
func TestAStuckRefresh(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const ttl, staleFor, timeout = 100 * time.Millisecond, 200 * time.Millisecond, time.Second
		c := open[string](t, s.Client(t), unhurried, func(o *Options) {
			o.TTL, o.StaleFor, o.KeepFor, o.LoadTimeout = ttl, staleFor, time.Hour, timeout
		})
		if err := c.Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		set := time.Now()
		finish := make(chan struct{})
		defer close(finish) // before the cache is closed, which waits for its loaders
		var loads atomic.Int64
		load := func(context.Context) (string, error) {
			if loads.Add(1) == 1 {
				<-finish
			}
			return "new", nil
		}
		last := time.Duration(0)
		redistest.Eventually(t, ttl+staleFor+2*timeout, "a new value", func() bool {
			asked := time.Since(set)
			ctx, cancel := context.WithTimeout(t.Context(), settle)
			defer cancel()
			v, err := c.Get(ctx, "k", load)
			if err == nil && v == "old" {
				last = asked
			}
			return v == "new"
		})
		if last > ttl+staleFor || last < ttl {
			t.Errorf("the old value was served for %v", last)
		}
		want(t, "loads", loads.Load(), 2)
	})
}

// An Expire is not lost on a refresh that runs: what that loads may be older, so it is not stored, and another follows.
func TestExpireDuringARefresh(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		stale := func(o *Options) { unhurried(o); o.TTL, o.StaleFor = time.Hour, time.Hour }
		a, b := open[string](t, s.Client(t), stale), open[string](t, s.Client(t), stale)
		if err := a.Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		if err := b.Expire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		began, finish := make(chan struct{}), make(chan struct{})
		source := returns("newest")
		if v, err := a.Get(t.Context(), "k", func(context.Context) (string, error) { close(began); <-finish; return "newer", nil }); v != "old" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		comes(t, "a refresh", began)
		if err := b.Expire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		close(finish)
		redistest.Eventually(t, 5*time.Second, "the newest value", func() bool {
			v, err := a.Get(t.Context(), "k", source.Load)
			if err != nil || v == "newer" {
				t.Fatalf("got %q, %v", v, err)
			}
			return v == "newest"
		})
		wantLoads(t, source, 1)
	})
}

// I6: many invalidations in a row, amid readers, cost one load each at most: who reads after one may not have what began
// to load before it. Expired values are served meanwhile, and each process refreshes them once at a time.
func TestManyInvalidations(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const times, every, instances = 100, 10 * time.Millisecond, 3
		for name, kind := range map[string]struct {
			change func(*Cache[string]) error
			takes  time.Duration // a load
		}{
			"invalidate": {func(c *Cache[string]) error { return c.Invalidate(t.Context(), "k") }, every / 2},
			"expire":     {func(c *Cache[string]) error { return c.Expire(t.Context(), "k") }, 5 * every},
		} {
			writer := open[string](t, s.Client(t), unhurried)
			if err := writer.With(Policy{StaleFor: time.Hour}).Set(t.Context(), "k", "v"); err != nil {
				t.Fatal(err)
			}
			var loads [instances]*origin[string]
			var running [instances]atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for i := range instances {
				c := open[string](t, s.Client(t), unhurried, func(o *Options) { o.StaleFor = time.Hour })
				loads[i] = &origin[string]{load: func(context.Context) (string, error) {
					if running[i].Add(1) > 1 && name == "expire" {
						t.Error("two refreshes at once")
					}
					defer running[i].Add(-1)
					time.Sleep(kind.takes)
					return "v", nil
				}}
				for range 5 {
					wg.Go(func() {
						for {
							select {
							case <-stop:
								return
							case <-time.After(every / 5):
							}
							if v, err := c.Get(t.Context(), "k", loads[i].Load); v != "v" || err != nil {
								t.Errorf("%s: got %q, %v", name, v, err)
							}
						}
					})
				}
			}
			begun := time.Now()
			for range times {
				time.Sleep(every)
				if err := kind.change(writer); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			took := time.Since(begun)
			close(stop)
			wg.Wait()
			most := int64(times)
			if name == "expire" {
				most = instances * int64(took/kind.takes+1)
			}
			n := int64(0)
			for _, o := range loads {
				n += o.loads.Load()
			}
			t.Logf("%s: %d loads in %v", name, n, took)
			if n > most || n == 0 {
				t.Errorf("%s: %d loads in %v, want %d at most", name, n, took, most)
			}
		}
	})
}

// The cost of a load that is far below a second counts: by it the early refresh is elected.
func TestTheCostOfAShortLoad(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), unhurried)
		for _, took := range []time.Duration{1500 * time.Microsecond, testLoad} {
			key := took.String()
			if _, err := c.Get(t.Context(), key, fails(took, nil).Load); err != nil {
				t.Fatal(err)
			}
			var saw sight
			err := c.view.look(t.Context(), key, false, &saw)
			if cost := time.Duration(saw.cost) * time.Microsecond; err != nil || cost < took || cost > took+time.Second/2 {
				t.Errorf("a load of %v cost %v, %v", took, cost, err)
			}
		}
	})
}
