package stockade

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I1: what is invalidated while a batch loads it is not stored, and the rest is. A read that begins afterwards loads anew.
func TestInvalidateBeatsABatch(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c, other := open[string](t, s.Client(t)), open[string](t, s.Client(t))
		began, finish := make(chan struct{}), make(chan struct{})
		o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := c.GetMany(t.Context(), []string{"a", "b", "c"}, o.load)
			wantValues(t, got, err, "a", "b", "c") // it came before
		})
		<-began
		if err := errors.Join(c.Invalidate(t.Context(), "a"), other.Invalidate(t.Context(), "b")); err != nil {
			t.Fatal(err)
		}
		late := map[string]*pending{"a": get(c, "a"), "b": get(other, "b")}
		for key, p := range late {
			<-p.began
			if err := expect(key, p.finish(Entry[string]{Value: "newer"}, nil), "newer"); err != nil {
				t.Error(err)
			}
		}
		close(finish)
		wg.Wait()
		for key, value := range map[string]string{"a": "newer", "b": "newer", "c": "v of c"} {
			want(t, key, storedIn(c, key), value)
		}
		want(t, "rejected", c.Stats().Rejected, 2)
	})
}

// I1: a batch that joins a load which began before it, and which an invalidation elsewhere has overtaken, goes round and
// loads anew; its other keys are not loaded twice.
func TestABatchDoesNotTakeAnOlderLoad(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c, other := open[string](t, s.Client(t)), open[string](t, s.Client(t))
		older := get(c, "a")
		<-older.began
		if err := other.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		var o table
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
			wantValues(t, got, err, "a", "b")
		}()
		redistest.Eventually(t, 10*time.Second, "b is loaded", func() bool { return storedIn(c, "b") == "v of b" })
		if err := expect("who came before", older.finish(Entry[string]{Value: "older"}, nil), "older"); err != nil {
			t.Error(err)
		}
		<-done
		want(t, "loads", o.loads(), "[[b] [a]]")
	})
}

// I1, with Get, GetMany and Invalidate at random.
func TestBatchesAmidInvalidations(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) { batchesAmidInvalidations(t, s, seed) })
		})
	}
}

func batchesAmidInvalidations(t *testing.T, s *redistest.FakeServer, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var rmu sync.Mutex
	rnd := func(n int) int { rmu.Lock(); defer rmu.Unlock(); return rng.IntN(n) }
	keys := numbered(6)
	var mu sync.Mutex
	db := map[string]int64{}
	acked := map[string]int64{}
	var caches []*Cache[int64]
	for range 3 {
		rdb := s.Client(t)
		pause := func([]redis.Cmder, error) { time.Sleep(time.Duration(rnd(6)) * time.Millisecond) }
		rdb.AddHook(around{pause, pause})
		c, err := New[int64](rdb, Options{Prefix: "test", TTL: 40 * time.Millisecond, MaxLoads: 1 + rnd(3), FailureBackoff: -1, LeaseTTL: 1000 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		caches = append(caches, c)
	}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for range 40 {
				c := caches[rnd(3)]
				switch rnd(5) {
				case 0:
					k := keys[rnd(6)]
					mu.Lock()
					db[k]++
					v := db[k]
					mu.Unlock()
					if c.Invalidate(t.Context(), k) == nil {
						mu.Lock()
						acked[k] = max(acked[k], v)
						mu.Unlock()
					}
				default:
					some := slices.Clone(keys[rnd(4):])
					floor := map[string]int64{}
					mu.Lock()
					for _, k := range some {
						floor[k] = acked[k]
					}
					mu.Unlock()
					load := func(_ context.Context, keys []string) (map[string]int64, error) {
						time.Sleep(time.Duration(rnd(10)) * time.Millisecond)
						m := map[string]int64{}
						mu.Lock()
						for _, k := range keys {
							m[k] = db[k]
						}
						mu.Unlock()
						time.Sleep(time.Duration(rnd(20)) * time.Millisecond)
						return m, nil
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					if rnd(3) == 0 {
						v, err := c.Get(ctx, some[0], one[int64](load, some[0]))
						if err != nil || v < floor[some[0]] {
							t.Errorf("Get %s: %d, want at least %d, %v", some[0], v, floor[some[0]], err)
						}
					} else {
						got, err := c.GetMany(ctx, some, load)
						for _, k := range some {
							if v, ok := got[k]; !ok || v < floor[k] {
								t.Errorf("%s: %d %v, want at least %d, %v", k, v, ok, floor[k], err)
							}
						}
					}
					cancel()
				}
			}
		})
	}
	wg.Wait()
	for _, c := range caches {
		_ = c.Close()
		want(t, "permits", c.view.permits.TryAcquire(int64(c.view.opts.MaxLoads)), true)
		want(t, "filling", int(c.view.filling.count.Load()), 0)
		want(t, "refreshing", int(c.view.refreshing.count.Load()), 0)
	}
	want(t, "leases", leases(t, s), 0)
}

// Leases are renewed while a batch loads, and one that is lost is let go: who comes later starts anew at once.
func TestABatchHoldsItsLeases(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c, other := open[string](t, s.Client(t)), open[string](t, s.Client(t))
		began := make(chan struct{})
		o := table{before: func(context.Context, []string) error {
			close(began)
			time.Sleep(3 * defaultLeaseTTL)
			return nil
		}}
		var wg sync.WaitGroup
		begun := time.Now()
		wg.Go(func() {
			got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
			wantValues(t, got, err, "a", "b")
		})
		<-began
		time.Sleep(defaultLeaseTTL / 2)
		if err := other.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(defaultLeaseTTL)
		if v, err := c.Get(t.Context(), "a", returns("newer").Load); v != "newer" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		want(t, "before the batch is back", time.Since(begun) < 3*defaultLeaseTTL, true)
		var waiter table
		got, err := other.GetMany(t.Context(), []string{"a", "b"}, waiter.load)
		want(t, "values", fmt.Sprint(got, err), "map[a:newer b:v of b] <nil>")
		want(t, "loads elsewhere", waiter.loads(), "[]")
		wg.Wait()
	})
}

// startsAnew is for a caller of a key whose load has been overtaken: it does not wait for that.
func startsAnew(t *testing.T, c *Cache[string], key string) {
	t.Helper()
	begun := time.Now()
	if v, err := c.Get(t.Context(), key, returns("newer").Load); v != "newer" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
	if took := time.Since(begun); took > 50*time.Millisecond {
		t.Errorf("waited %v", took)
	}
}

// slowReply is a hook that holds the first answer to a step back for 20 ms.
func slowReply(step string) redis.Hook {
	var once sync.Once
	return around{after: func(cmds []redis.Cmder, err error) {
		if err == nil && isStep(cmds[0].Args(), step) {
			once.Do(func() { time.Sleep(20 * time.Millisecond) })
		}
	}}
}

// Who arrives at the holder's process after an invalidation elsewhere does not wait for the end of the batch: the message
// has it look after its leases.
func TestABatchHearsOfInvalidations(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c, other := open[string](t, s.Client(t)), open[string](t, s.Client(t))
		c.view.bus.Start()
		redistest.Eventually(t, time.Second, "the subscription is up", c.view.bus.Live)
		began, finish := make(chan struct{}), make(chan struct{})
		o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
		go func() { _, _ = c.GetMany(t.Context(), []string{"a", "b"}, o.load) }()
		<-began
		if err := other.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		startsAnew(t, c, "a")
		close(finish)
	})
}

// A message that comes while a renewal is out is answered by the next.
func TestABatchHearsDuringARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb := s.Client(t)
		c, other := open[string](t, rdb), open[string](t, s.Client(t))
		c.view.bus.Start()
		redistest.Eventually(t, time.Second, "the subscription is up", c.view.bus.Live)
		began, finish := make(chan struct{}), make(chan struct{})
		o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
		go func() { _, _ = c.GetMany(t.Context(), []string{"a", "b", "c"}, o.load) }()
		<-began
		rdb.AddHook(slowReply("renew"))
		if err := other.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if err := other.Invalidate(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		startsAnew(t, c, "b")
		close(finish)
	})
}

// A message that comes before the grant is known is heard.
func TestABatchHearsBeforeItsLoad(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				c, other := open[string](t, rdb), open[string](t, s.Client(t))
				c.view.bus.Start()
				redistest.Eventually(t, time.Second, "the subscription is up", c.view.bus.Live)
				began, finish := make(chan struct{}), make(chan struct{})
				o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
				rdb.AddHook(slowReply("acquire"))
				go func() {
					if many {
						_, _ = c.GetMany(t.Context(), []string{"a", "c"}, o.load)
					} else {
						_, _ = c.Get(t.Context(), "a", one[string](o.load, "a"))
					}
				}()
				time.Sleep(10 * time.Millisecond)
				if err := other.Invalidate(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				<-began
				time.Sleep(10 * time.Millisecond)
				startsAnew(t, c, "a")
				close(finish)
			})
		})
	}
}
