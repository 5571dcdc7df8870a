package stockade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Stale values are served at once, and renewed by one load in the background.
func TestGetManyRefreshesInOneBatch(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var events atomic.Int64
		c := open[string](t, s.Client(t), func(o *Options) {
			o.StaleFor = time.Hour
			o.Observer.Refresh = func(e RefreshEvent) {
				if !e.Early && !e.Skipped && e.Err == nil {
					events.Add(1)
				}
			}
		})
		keys := []string{"a", "b", "c"}
		for _, key := range keys {
			if err := c.Set(t.Context(), key, "older"); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Expire(t.Context(), "a", "c"); err != nil {
			t.Fatal(err)
		}
		var o table
		got, err := c.GetMany(t.Context(), keys, o.load)
		if want := map[string]string{"a": "older", "b": "older", "c": "older"}; !maps.Equal(got, want) || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		redistest.Eventually(t, 10*time.Second, "refreshed", func() bool { return events.Load() == 2 })
		want(t, "loads", o.loads(), "[[a c]]")
		for key, value := range map[string]string{"a": "v of a", "b": "older", "c": "v of c"} {
			want(t, key, storedIn(c, key), value)
		}
	})
}

// A refresh of many keys gives back what it holds, however it ends.
func TestABatchOfRefreshesGivesBack(t *testing.T) {
	for name, fault := range map[string]func(*redistest.Faults){
		"none":         func(*redistest.Faults) {},
		"acquire lost": func(f *redistest.Faults) { f.LoseReply(40, runs("acquire")) },
		"acquire oom":  func(f *redistest.Faults) { f.Refuse(1, runs("acquire"), refusal("OOM x")) },
		"commit oom":   func(f *redistest.Faults) { f.Refuse(1, runs("commit"), refusal("OOM x")) },
		"commit slow":  func(f *redistest.Faults) { f.Delay(1, runs("commit"), time.Second) },
		"acquire slow": func(f *redistest.Faults) { f.Delay(1, runs("acquire"), time.Second) },
	} {
		for _, end := range []string{"ok", "err", "panic", "nil", "hang"} {
			t.Run(name+" "+end, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
					rdb := s.Client(t)
					faults := redistest.NewFaults(t)
					rdb.AddHook(faults)
					c := open[string](t, rdb, func(o *Options) { o.MaxLoads, o.StaleFor, o.LoadTimeout = 1, time.Hour, time.Second })
					keys := numbered(5)
					for _, k := range keys {
						_ = c.Set(t.Context(), k, "old")
					}
					_ = c.Expire(t.Context(), keys...)
					time.Sleep(time.Second)
					fault(faults)
					got, err := c.GetMany(t.Context(), keys, func(ctx context.Context, keys []string) (map[string]string, error) {
						switch end {
						case "err":
							return nil, errors.New("x")
						case "panic":
							panic("x")
						case "nil":
							return nil, nil
						case "hang":
							time.Sleep(5 * time.Second)
						}
						slices.Reverse(keys)
						return valuesOf(keys), nil
					})
					want(t, "values", fmt.Sprint(len(got), err), "5 <nil>")
					time.Sleep(20 * time.Second)
					faults.Clear()
					want(t, "leases", leases(t, s), 0)
					want(t, "refreshing", int(c.view.refreshing.count.Load()), 0)
					want(t, "flights", int(c.view.stats.flights.Load()), 0)
					want(t, "loading", int(c.view.stats.loading.Load()), 0)
					want(t, "permits", c.view.permits.TryAcquire(1), true)
					c.view.permits.Release(1)
					want(t, "background", c.view.background.TryAcquire(1), true)
					c.view.background.Release(1)
				})
			})
		}
	}
}
