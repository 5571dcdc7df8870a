package stockade

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// withLocal turns the local tier on.
func withLocal(o *Options) { o.Local.Entries = 1000 }

// hearing returns a cache with a local tier that hears of changes. It is for bubbles.
func hearing[T any](t testing.TB, rdb redis.UniversalClient, change ...func(*Options)) *Cache[T] {
	t.Helper()
	c := open[T](t, rdb, append([]func(*Options){withLocal}, change...)...)
	_, _ = c.Lookup(t.Context(), "begins to listen")
	synctest.Wait()
	want(t, "changes are heard of", c.view.local.live.Load(), true)
	return c
}

// wantEntry looks at what a Get, with a loader that must not run, brings.
func wantEntry[T comparable](t testing.TB, what string, c *Cache[T], key string, value T, source Source) Entry[T] {
	t.Helper()
	e, err := c.Fetch(t.Context(), key, func(context.Context, *Entry[T]) (Entry[T], error) {
		t.Errorf("%s: loads", what)
		return Entry[T]{Value: value}, nil
	})
	if e.Value != value || e.Source != source || err != nil {
		t.Errorf("%s: got %v from %v, %v, want %v from %v", what, e.Value, e.Source, err, value, source)
	}
	return e
}

func set[T any](t testing.TB, c *Cache[T], key string, value T) {
	t.Helper()
	if err := c.Set(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// A hit in the local tier asks Redis nothing, for as long as the entry is fresh, and at most for Local.TTL.
func TestLocalHits(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"as long as it is fresh": 0, "for its own TTL": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				c := hearing[string](t, rdb, func(o *Options) { o.TTL, o.StaleFor, o.Local.TTL = time.Minute, time.Hour, ttl })
				set(t, c, "k", "v")
				time.Sleep(10 * time.Second)
				wantEntry(t, "first", c, "k", "v", Hit)
				trips := countRoundTrips(rdb)
				for range 3 {
					time.Sleep(5 * time.Second)
					wantEntry(t, "later", c, "k", "v", Local)
				}
				e, err := c.Lookup(t.Context(), "k")
				wantAge(t, e, err, Local, 25*time.Second)
				got, err := c.GetMany(t.Context(), []string{"k"}, func(context.Context, []string) (map[string]string, error) { return nil, errSource })
				if err != nil || got["k"] != "v" {
					t.Errorf("GetMany: %v, %v", got, err)
				}
				want(t, "round trips", trips.Load(), 0)
				want(t, "counted as local", c.Stats().Local, 4)
				want(t, "counted as hits", c.Stats().Hits, 1)

				if ttl == 0 {
					time.Sleep(35*time.Second - time.Millisecond) // a minute after it was set, but for the last millisecond
					wantEntry(t, "at the end", c, "k", "v", Local)
					time.Sleep(2 * time.Millisecond)
					e, err := c.Lookup(t.Context(), "k")
					wantAge(t, e, err, Stale, time.Minute)
					return
				}
				time.Sleep(5*time.Second - time.Millisecond) // 20 s after it was read
				wantEntry(t, "at the end", c, "k", "v", Local)
				time.Sleep(2 * time.Millisecond)
				wantEntry(t, "after its own TTL", c, "k", "v", Hit)
				wantEntry(t, "again", c, "k", "v", Local)
			})
		})
	}
}

// The tier has what this process loads, waits for, refreshes and reads in batches, and what it knows to be absent.
func TestWhatTheLocalTierHas(t *testing.T) {
	fetch := func(c *Cache[string], key string) {
		_, _ = c.Get(context.Background(), key, returns("v of "+key).Load)
	}
	for name, fill := range map[string]func(t *testing.T, c, other *Cache[string]){
		"load": func(t *testing.T, c, _ *Cache[string]) { fetch(c, "k") },
		"wait": func(t *testing.T, c, other *Cache[string]) {
			o := slowly("v of k")
			go func() { _, _ = other.Get(t.Context(), "k", o.Load) }()
			synctest.Wait()
			wantEntry(t, "wait", c, "k", "v of k", Remote)
		},
		"batch": func(t *testing.T, c, _ *Cache[string]) {
			var o table
			_, _ = c.GetMany(t.Context(), []string{"k", "l"}, o.load)
		},
		"batch of hits": func(t *testing.T, c, other *Cache[string]) {
			fetch(other, "k")
			fetch(other, "l")
			var o table
			_, _ = c.GetMany(t.Context(), []string{"k", "l"}, o.load)
		},
		"batch that waits": func(t *testing.T, c, other *Cache[string]) {
			o := table{before: func(context.Context, []string) error { time.Sleep(testLoad); return nil }}
			go func() { _, _ = other.GetMany(t.Context(), []string{"k"}, o.load) }()
			synctest.Wait()
			_, _ = c.GetMany(t.Context(), []string{"k", "l"}, o.load)
		},
		"lookup": func(t *testing.T, c, other *Cache[string]) {
			fetch(other, "k")
			_, _ = c.Lookup(t.Context(), "k")
		},
		"not modified": func(t *testing.T, c, _ *Cache[string]) {
			kept := c.With(Policy{TTL: time.Second, KeepFor: time.Hour})
			fetch(kept, "k")
			time.Sleep(2 * time.Second)
			_, _ = c.Fetch(t.Context(), "k", func(context.Context, *Entry[string]) (Entry[string], error) { return Entry[string]{}, ErrNotModified })
		},
		"refresh": func(t *testing.T, c, _ *Cache[string]) {
			soft := c.With(Policy{TTL: time.Second, StaleFor: time.Hour})
			fetch(soft, "k")
			time.Sleep(2 * time.Second)
			_, _ = c.Get(t.Context(), "k", returns("v of k").Load)
			synctest.Wait()
		},
		"refresh elsewhere": func(t *testing.T, c, other *Cache[string]) {
			soft := c.With(Policy{TTL: time.Second, StaleFor: time.Hour})
			fetch(soft, "k")
			time.Sleep(2 * time.Second)
			_, _ = other.Get(t.Context(), "k", returns("v of k").Load)
			synctest.Wait()
			fetch(c, "k")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				c, other := hearing[string](t, rdb), open[string](t, s.Client(t))
				fill(t, c, other)
				trips := countRoundTrips(rdb)
				wantEntry(t, "then", c, "k", "v of k", Local)
				want(t, "round trips", trips.Load(), 0)
			})
		})
	}
	t.Run("absent", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
			rdb := s.Client(t)
			c := hearing[string](t, rdb, func(o *Options) { o.AbsentTTL = time.Minute })
			o := fails(0, ErrNotFound)
			for range 3 {
				if _, err := c.Get(t.Context(), "k", o.Load); !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			}
			wantLoads(t, o, 1)
			trips := countRoundTrips(rdb)
			if _, err := c.Lookup(t.Context(), "k"); !errors.Is(err, ErrNotFound) {
				t.Error(err)
			}
			want(t, "round trips", trips.Load(), 0)
			time.Sleep(time.Minute)
			if _, err := c.Lookup(t.Context(), "k"); !errors.Is(err, ErrMiss) {
				t.Errorf("after AbsentTTL: %v", err)
			}
		})
	})
	t.Run("not what may not be stored", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
			c := hearing[string](t, s.Client(t), func(o *Options) { o.AbsentTTL = -1 })
			for range 2 {
				e, err := c.Fetch(t.Context(), "k", func(context.Context, *Entry[string]) (Entry[string], error) {
					return Entry[string]{Value: "v", NoStore: true}, nil
				})
				if e.Source != Loaded || err != nil {
					t.Errorf("got %v, %v", e, err)
				}
			}
			o := fails(0, ErrNotFound)
			for range 2 {
				_, _ = c.Get(t.Context(), "absent", o.Load)
			}
			wantLoads(t, o, 2)
		})
	})
}

// Hits in the local tier elect an early refresh, so that a hot key does not expire in all processes at once. What
// another process has refreshed is taken over: the tier does not ask again and again.
func TestLocalHitsRefreshEarly(t *testing.T) {
	for name, size := range map[string]int{"small": 10, "large": 20_000} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				eager := func(o *Options) { o.TTL, o.EarlyRefresh = 10*time.Second, 100 }
				a, b := hearing[string](t, s.Client(t), eager), hearing[string](t, s.Client(t), eager)
				value := strings.Repeat("v", size)
				var versions atomic.Int64
				o := &origin[string]{load: func(context.Context) (string, error) {
					time.Sleep(testLoad)
					return fmt.Sprint(value, versions.Add(1)), nil
				}}
				get := func(c *Cache[string]) string {
					v, err := c.Get(t.Context(), "k", o.Load)
					if err != nil {
						t.Error(err)
					}
					return strings.TrimLeft(v, "v")
				}
				_, _ = get(a), get(b)
				time.Sleep(9900 * time.Millisecond)
				for range 10 {
					want(t, "meanwhile", get(a), "1")
				}
				time.Sleep(2 * testLoad)
				want(t, "refreshed", get(a), "2")
				for range 10 {
					_ = get(b) // elects too, and finds it refreshed
					synctest.Wait()
				}
				want(t, "taken over", get(b), "2")
				want(t, "misses", a.Stats().Misses+b.Stats().Misses, 1)
				wantLoads(t, o, 2)
				if n := b.Stats().Refreshes; n != 0 {
					t.Errorf("%d refreshes of what was refreshed", n)
				}
			})
		})
	}
}

func TestLocalHitsDoNotAllocate(t *testing.T) {
	s := redistest.Real(t)
	c := open[map[string]string](t, s.Client(t), withLocal, func(o *Options) { o.TTL, o.EarlyRefresh = time.Hour, 1 })
	load := returns(map[string]string{"a": "b"}).Load
	ctx := t.Context()
	get := func() {
		if _, err := c.Get(ctx, "k", load); err != nil {
			t.Error(err)
		}
	}
	get()
	redistest.Eventually(t, 10*time.Second, "changes are heard of", c.view.local.live.Load)
	get()
	if n := testing.AllocsPerRun(1000, get); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := c.Stats().Local; n < 1000 {
		t.Errorf("%d local hits", n)
	}
}

// The tier is bounded by its entries.
func TestTheLocalTierIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := hearing[string](t, s.Client(t), func(o *Options) { o.Local.Entries = 10 })
		for i := range 1000 {
			set(t, c, fmt.Sprint(i), "v")
			wantEntry(t, "first", c, fmt.Sprint(i), "v", Hit)
		}
		synctest.Wait()
		before := c.Stats().Local
		for i := range 1000 {
			_, _ = c.view.local.get(fmt.Sprint(i))
			if e, _ := c.view.local.get(fmt.Sprint(i)); e != nil {
				before++
			}
		}
		if n := before - c.Stats().Local; n > 10 || n == 0 {
			t.Errorf("%d entries", n)
		}
	})
}
