package stockade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// table is an origin of many keys: the value of "k" is "v of k". It records what it was asked for.
type table struct {
	before func(ctx context.Context, keys []string) error // may be nil
	mu     sync.Mutex
	asked  [][]string // guarded by mu
}

func (o *table) load(ctx context.Context, keys []string) (map[string]string, error) {
	o.mu.Lock()
	o.asked = append(o.asked, slices.Sorted(slices.Values(keys)))
	o.mu.Unlock()
	if o.before != nil {
		if err := o.before(ctx, keys); err != nil {
			return nil, err
		}
	}
	return valuesOf(keys), nil
}

// loads says what was asked for: each call in brackets.
func (o *table) loads() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprint(o.asked)
}

func valuesOf(keys []string) map[string]string {
	values := map[string]string{}
	for _, key := range keys {
		if !strings.HasPrefix(key, "absent") {
			values[key] = "v of " + key
		}
	}
	return values
}

func inBubble(t *testing.T, f func(t *testing.T, s *redistest.FakeServer)) {
	synctest.Test(t, func(t *testing.T) { f(t, redistest.Fake(t)) })
}

func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%05d", i))
	}
	return keys
}

func wantValues(t testing.TB, got map[string]string, err error, keys ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("error: %v", err)
	}
	if want := valuesOf(keys); !maps.Equal(got, want) {
		t.Errorf("got %d values %.300v, want %d", len(got), got, len(want))
	}
}

// roundTrips counts those of a client, without what greets a new connection.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) count(cmd redis.Cmder) {
	if name := cmd.Name(); name != "hello" && name != "client" {
		r.n.Add(1)
	}
}

func (r *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { r.count(cmd); return next(ctx, cmd) }
}
func (r *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { r.count(cmds[0]); return next(ctx, cmds) }
}

func TestGetManyTakesThreeRoundTrips(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		c := open[string](t, rdb)
		var warm table
		_, _ = c.GetMany(t.Context(), []string{"warm"}, warm.load) // connections, scripts, the server's time
		var trips roundTrips
		rdb.AddHook(&trips)
		var o table
		keys := append(numbered(100), "absent")
		for _, want := range []int64{3, 1} { // read, acquire, commit; then read
			trips.n.Store(0)
			got, err := c.GetMany(t.Context(), keys, o.load)
			wantValues(t, got, err, keys...)
			if n := trips.n.Load(); n != want {
				t.Errorf("%d round trips, want %d", n, want)
			}
		}
		want(t, "loads", len(o.asked), 1)
		want(t, "keys of the load", len(o.asked[0]), 101)
		stats := c.Stats()
		want(t, "loads counted", stats.Loads, 2)
		want(t, "hits", stats.Hits, 100)
		want(t, "absent", stats.Absent, 1)
		if _, err := c.Lookup(t.Context(), "absent"); !errors.Is(err, ErrNotFound) {
			t.Errorf("absent: %v", err)
		}
	})
}

func TestGetManyLoadsExactlyWhatIsMissing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		for _, key := range []string{"b", "d"} {
			if err := c.Set(t.Context(), key, "v of "+key); err != nil {
				t.Fatal(err)
			}
		}
		var o table
		got, err := c.GetMany(t.Context(), []string{"a", "b", "c", "b", "d", "a", "absent"}, o.load)
		wantValues(t, got, err, "a", "b", "c", "d")
		want(t, "loads", o.loads(), "[[a absent c]]")
	})
}

// Every key of overlapping batches is loaded once in the fleet.
func TestGetManyInTheFleet(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const instances, each, step = 20, 200, 20
		all := numbered(each + instances*step)
		o := table{before: func(context.Context, []string) error { time.Sleep(testLoad); return nil }}
		var wg sync.WaitGroup
		for i := range instances {
			c := open[string](t, s.Client(t), unhurried)
			wg.Go(func() {
				keys := all[i*step : i*step+each]
				got, err := c.GetMany(t.Context(), keys, o.load)
				wantValues(t, got, err, keys...)
			})
		}
		wg.Wait()
		loads := map[string]int{}
		for _, keys := range o.asked {
			for _, key := range keys {
				loads[key]++
			}
		}
		for key, n := range loads {
			want(t, "loads of "+key, n, 1)
		}
		want(t, "keys loaded", len(loads), each+(instances-1)*step)
		if len(o.asked) > instances {
			t.Errorf("%d loads by %d instances", len(o.asked), instances)
		}
	})
}

// A Get joins a batch that loads its key, and a batch a Get.
func TestGetManyAndGetShareFlights(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		single := get(c, "single")
		<-single.began
		began, finish := make(chan struct{}), make(chan struct{})
		o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := c.GetMany(t.Context(), []string{"single", "a", "b"}, o.load)
			wantValues(t, got, err, "single", "a", "b")
		})
		<-began
		other := returns("not asked")
		wg.Go(func() {
			if v, err := c.Get(t.Context(), "a", other.Load); v != "v of a" || err != nil {
				t.Errorf("a: %q, %v", v, err)
			}
		})
		var more table
		wg.Go(func() {
			got, err := c.GetMany(t.Context(), []string{"b", "a", "single"}, more.load)
			wantValues(t, got, err, "a", "b", "single")
		})
		redistest.Eventually(t, 10*time.Second, "all wait", func() bool { return c.Stats().Misses == 8 })
		single.finish(Entry[string]{Value: "v of single"}, nil)
		close(finish)
		wg.Wait()
		wantLoads(t, other, 0)
		want(t, "loads", o.loads()+more.loads(), "[[a b]][]")
	})
}

func TestGetManyFails(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		load  BatchLoader[string]
		is    error
		fails []string
		has   []string
	}{
		"error":   {func(context.Context, []string) (map[string]string, error) { return nil, broken }, broken, []string{"a", "absent", "b"}, nil},
		"map too": {func(_ context.Context, k []string) (map[string]string, error) { return valuesOf(k), broken }, broken, []string{"a", "absent", "b"}, nil},
		"some": {func(_ context.Context, k []string) (map[string]string, error) {
			return valuesOf(k), &KeysError{Errs: map[string]error{"a": broken}}
		}, broken, []string{"a"}, []string{"b"}},
		"panic": {func(context.Context, []string) (map[string]string, error) { panic(broken) }, broken, []string{"a", "absent", "b"}, nil},
		"panic some": {func(context.Context, []string) (map[string]string, error) {
			panic(&KeysError{Errs: map[string]error{"a": broken}})
		}, broken, []string{"a", "absent", "b"}, nil},
		"goexit":    {func(context.Context, []string) (map[string]string, error) { runtime.Goexit(); return nil, nil }, nil, []string{"a", "absent", "b"}, nil},
		"not found": {func(context.Context, []string) (map[string]string, error) { return nil, ErrNotFound }, nil, nil, nil},
		"nothing":   {func(context.Context, []string) (map[string]string, error) { return nil, nil }, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				c := open[string](t, s.Client(t))
				if err := c.Set(t.Context(), "stored", "v of stored"); err != nil {
					t.Fatal(err)
				}
				got, err := c.GetMany(t.Context(), []string{"a", "stored", "b", "absent"}, test.load)
				wantValues(t, got, nil, append(test.has, "stored")...)
				var keys *KeysError
				var failed *LoadError
				if len(test.fails) == 0 {
					want(t, "error", err, nil)
					return
				}
				if !errors.As(err, &keys) || !errors.As(err, &failed) || test.is != nil && !errors.Is(err, test.is) {
					t.Fatalf("got %v", err)
				}
				want(t, "failed", fmt.Sprint(slices.Sorted(maps.Keys(keys.Errs))), fmt.Sprint(test.fails))
				_, err = open[string](t, s.Client(t)).Get(t.Context(), "a", returns("v").Load)
				if !errors.As(err, &failed) || !failed.Remote {
					t.Errorf("elsewhere, within the backoff: %v", err)
				}
				if n := leases(t, s); n != 0 {
					t.Errorf("%d leases are left", n)
				}
			})
		})
	}
}

func TestGetManyOfOddKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var ignored atomic.Value
		c := open[string](t, s.Client(t), unhurried, func(o *Options) {
			o.Observer.Load = func(e LoadEvent) {
				if e.Outcome == Ignored {
					ignored.Store(e.Key)
				}
			}
		})
		var o table
		for _, keys := range [][]string{nil, {}, {""}, {"", "{", "}{", "\xff", "{tag}x", strings.Repeat("long", 1<<16)}} {
			got, err := c.GetMany(t.Context(), keys, o.load)
			wantValues(t, got, err, keys...)
		}
		many := numbered(1000)
		if _, ok := s.(*redistest.RealServer); ok { // the fake takes ten times as long
			many = numbered(10_000)
		}
		got, err := c.GetMany(t.Context(), many, o.load)
		wantValues(t, got, err, many...)
		got, err = c.GetMany(t.Context(), many, o.load)
		wantValues(t, got, err, many...)
		want(t, "loads", len(o.asked), 3)

		if _, err := c.GetMany(t.Context(), many, nil); !errors.Is(err, errNilLoader) {
			t.Errorf("nil loader: %v", err)
		}
		var none context.Context
		if _, err := c.GetMany(none, many, o.load); !errors.Is(err, errNilContext) {
			t.Errorf("nil context: %v", err)
		}
		got, err = c.GetMany(t.Context(), []string{"asked"}, func(context.Context, []string) (map[string]string, error) {
			return map[string]string{"asked": "v of asked", "unasked": "no"}, nil
		})
		wantValues(t, got, err, "asked")
		want(t, "ignored", ignored.Load(), any("unasked"))
		if _, err := c.Lookup(t.Context(), "unasked"); !errors.Is(err, ErrMiss) {
			t.Errorf("unasked: %v", err)
		}
		_ = c.Close()
		if _, err := c.GetMany(t.Context(), many, o.load); err != ErrClosed {
			t.Errorf("closed: %v", err)
		}
	})
}

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

// A loader that asks for a key that it is loading gets ErrReentrant for that; its other keys need no place of their own.
func TestGetManyInALoader(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads = 1 })
		var inner table
		outer := table{before: func(ctx context.Context, _ []string) error {
			got, err := c.GetMany(ctx, []string{"a", "c"}, inner.load)
			wantValues(t, got, nil, "c")
			var keys *KeysError
			if !errors.As(err, &keys) || len(keys.Errs) != 1 || keys.Errs["a"] != ErrReentrant {
				t.Errorf("got %v", err)
			}
			if _, err := c.Get(ctx, "b", returns("v").Load); err != ErrReentrant {
				t.Errorf("Get: %v", err)
			}
			return nil
		}}
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, outer.load)
		wantValues(t, got, err, "a", "b")
		want(t, "loads", inner.loads(), "[[c]]")
	})
}

// The Guard is asked once for a whole batch, and what it rules out is not loaded.
func TestGetManyAsksTheGuardOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		g := &guard{may: func(_ context.Context, keys []string) (may []bool, _ error) {
			for _, key := range keys {
				may = append(may, key != "no")
			}
			return may, nil
		}}
		c := open[string](t, s.Client(t), guarded(g))
		var o table
		got, err := c.GetMany(t.Context(), []string{"a", "no", "b"}, o.load)
		wantValues(t, got, err, "a", "b")
		want(t, "loads", o.loads(), "[[a b]]")
		want(t, "questions", g.asked.Load(), 1)
		if _, err := c.Lookup(t.Context(), "no"); !errors.Is(err, ErrMiss) {
			t.Errorf("what is ruled out is not stored: %v", err)
		}
		got, err = c.GetMany(t.Context(), []string{"no"}, o.load)
		wantValues(t, got, err)
		want(t, "loads", o.loads(), "[[a b]]")
		if n := leases(t, s); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// A caller leaves at its deadline with what it has; the load goes on.
func TestGetManyEndsWithItsContext(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		if err := c.Set(t.Context(), "stored", "v of stored"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		o := table{before: func(context.Context, []string) error { cancel(); time.Sleep(testLoad); return nil }}
		got, err := c.GetMany(ctx, []string{"a", "stored", "b"}, o.load)
		wantValues(t, got, nil, "stored")
		var keys *KeysError
		if !errors.As(err, &keys) || len(keys.Errs) != 2 || !errors.Is(keys.Errs["a"], context.Canceled) {
			t.Errorf("got %v", err)
		}
		redistest.Eventually(t, 10*time.Second, "stored", func() bool { return storedIn(c, "b") == "v of b" })
		if _, err := c.GetMany(ctx, []string{"a"}, o.load); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

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

// Who arrives at the holder's process after an invalidation elsewhere does not wait for the end of the batch: the message
// has it look after its leases.
func TestABatchHearsOfInvalidations(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c, other := open[string](t, s.Client(t)), open[string](t, s.Client(t))
		c.bus.Start()
		redistest.Eventually(t, time.Second, "the subscription is up", c.bus.Live)
		began, finish := make(chan struct{}), make(chan struct{})
		o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
		go func() { _, _ = c.GetMany(t.Context(), []string{"a", "b"}, o.load) }()
		<-began
		if err := other.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun := time.Now()
		if v, err := c.Get(t.Context(), "a", returns("newer").Load); v != "newer" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		want(t, "waited", time.Since(begun), 0)
		close(finish)
	})
}

// A key that another is loading is read when the message comes that it is there, and not asked for before.
func TestABatchWaitsForAKey(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb := s.Client(t)
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		holder, c := open[string](t, s.Client(t)), open[string](t, rdb)
		c.bus.Start()
		redistest.Eventually(t, time.Second, "the subscription is up", c.bus.Live)
		p := get(holder, "a")
		<-p.began
		var o table
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
			wantValues(t, got, err, "a", "b")
		}()
		synctest.Wait()
		steps, reads := faults.Count("evalsha", "eval"), faults.Count("get", "mget")
		p.finish(Entry[string]{Value: "v of a"}, nil)
		<-done
		want(t, "steps since", faults.Count("evalsha", "eval")-steps, 0)
		want(t, "reads since", faults.Count("get", "mget")-reads, 1)
		want(t, "loads", o.loads(), "[[b]]")
		want(t, "waits", c.Stats().Waits, 1)
		want(t, "wakes", c.Stats().Wakes, 1)
	})
}

// What waits is polled for in one pipeline, and every key is told of.
func TestABatchPolls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var trips roundTrips
		var mu sync.Mutex
		var told []WaitEvent
		rdb := s.Client(t)
		holder := open[string](t, s.Client(t))
		c := open[string](t, rdb, func(o *Options) {
			o.Observer.Wait = func(e WaitEvent) { mu.Lock(); defer mu.Unlock(); told = append(told, e) }
		})
		c.bus.Start()
		redistest.Eventually(t, time.Second, "the subscription is up", c.bus.Live)
		keys := numbered(50)
		finish := make(chan struct{})
		slow := table{before: func(context.Context, []string) error { <-finish; return nil }}
		go func() { _, _ = holder.GetMany(t.Context(), keys, slow.load) }()
		synctest.Wait()
		var o table
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := c.GetMany(t.Context(), keys, o.load)
			wantValues(t, got, err, keys...)
		}()
		synctest.Wait()
		rdb.AddHook(&trips)
		time.Sleep(time.Second)
		polls := trips.n.Load()
		if polls < 4 || polls > 16 {
			t.Errorf("%d round trips in a second", polls)
		}
		close(finish)
		<-done
		if n := trips.n.Load() - polls; n > int64(len(keys))/2 {
			t.Errorf("%d round trips for the values", n)
		}
		mu.Lock()
		defer mu.Unlock()
		want(t, "events", len(told), len(keys))
		want(t, "wakes", told[0].Wakes, 1)
		want(t, "stamp", len(told[0].Stamp), 16)
		want(t, "loads", o.loads(), "[]")
	})
}

// A batch of which nobody knows whether it was granted leaves no leases, and neither does one that was granted too late.
func TestABatchLeavesNoLeases(t *testing.T) {
	for name, fault := range map[string]func(*redistest.Faults){
		"lost": func(f *redistest.Faults) { f.LoseReply(1, runs("acquire")) },
		"late": func(f *redistest.Faults) {
			reached, release := f.Block(runs("acquire"))
			go func() { <-reached; time.Sleep(2 * defaultRedisTimeout); release() }()
		},
		"fails": func(f *redistest.Faults) { f.Refuse(1, runs("commit"), refusal("ERR no")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
				c := open[string](t, rdb, func(o *Options) { o.LeaseTTL = time.Hour })
				faults := redistest.NewFaults(t)
				rdb.AddHook(faults)
				fault(faults)
				var o table
				got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
				wantValues(t, got, err, "a", "b")
				time.Sleep(time.Second)
				if n := leases(t, s); n != 0 {
					t.Errorf("%d leases are left", n)
				}
			})
		})
	}
}

// Keys whose holder has crashed are loaded when its leases have expired, and do not keep the others.
func TestGetManyAfterACrash(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		crash(t, s, c, "a", time.Second)
		var o table
		begun := time.Now()
		got, err := c.GetMany(t.Context(), []string{"a", "b", "c"}, o.load)
		wantValues(t, got, err, "a", "b", "c")
		want(t, "loads", o.loads(), "[[b c] [a]]")
		if took := time.Since(begun); took < time.Second || took > 1300*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// I4: a lost reply of any step of a batch costs nothing but time.
func TestGetManyLosesAReply(t *testing.T) {
	for _, step := range []string{"acquire", "commit"} {
		for _, executed := range []bool{true, false} {
			t.Run(fmt.Sprint(step, " executed ", executed), func(t *testing.T) {
				redistest.Each(t, func(t *testing.T, s redistest.Server) {
					faults := redistest.NewFaults(t)
					rdb := s.Client(t)
					c := open[string](t, rdb)
					var warm table
					_, _ = c.GetMany(t.Context(), []string{"warm"}, warm.load)
					rdb.AddHook(faults)
					if executed {
						faults.LoseReply(1, runs(step))
					} else {
						faults.Refuse(1, runs(step), net.ErrClosed)
					}
					var o table
					got, err := c.GetMany(t.Context(), []string{"a", "b", "c"}, o.load)
					wantValues(t, got, err, "a", "b", "c")
					want(t, "loads", o.loads(), "[[a b c]]")
					for _, key := range []string{"a", "b", "c"} {
						want(t, key, storedIn(c, key), "v of "+key)
					}
					if n := leases(t, s); n != 0 {
						t.Errorf("%d leases are left", n)
					}
				})
			})
		}
	}
}

// When Redis fails, all keys are one load, remembered for a second; or an error, by policy.
func TestGetManyInAnOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		c := open[string](t, p.Client(t))
		strict := open[string](t, p.Client(t), func(o *Options) { o.WhenRedisFails = ReturnError })
		var o table
		got, err := c.GetMany(t.Context(), []string{"before"}, o.load)
		wantValues(t, got, err, "before")
		begin()
		begun := time.Now()
		for range 3 {
			got, err := c.GetMany(t.Context(), []string{"a", "b", "absent"}, o.load)
			wantValues(t, got, err, "a", "b")
		}
		if took := time.Since(begun); took > 3*defaultRedisTimeout {
			t.Errorf("took %v", took)
		}
		want(t, "loads", o.loads(), "[[before] [a absent b]]")
		got, err = strict.GetMany(t.Context(), []string{"a", "before"}, o.load)
		var keys *KeysError
		if len(got) != 0 || !errors.As(err, &keys) || len(keys.Errs) != 2 || !errors.Is(err, ErrRedis) {
			t.Errorf("got %v, %v", got, err)
		}
		end()
		redistest.Eventually(t, 10*time.Second, "stored again", func() bool {
			got, err := c.GetMany(t.Context(), []string{"a", "b", "before"}, o.load)
			wantValues(t, got, err, "a", "b", "before")
			return storedIn(c, "a") == "v of a" && storedIn(c, "b") == "v of b"
		})
	})
}

// Close ends a batch: its callers get ErrClosed, its leases are given back.
func TestCloseEndsABatch(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		began := make(chan struct{})
		o := table{before: func(ctx context.Context, _ []string) error { close(began); <-ctx.Done(); return ctx.Err() }}
		failed := make(chan error)
		go func() {
			_, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
			failed <- err
		}()
		<-began
		_ = c.Close()
		var keys *KeysError
		if err := <-failed; !errors.As(err, &keys) || keys.Errs["a"] != ErrClosed || keys.Errs["b"] != ErrClosed {
			t.Errorf("got %v", err)
		}
		if n := leases(t, s); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// A batch holds one place among MaxLoads, and waits for it.
func TestABatchIsOneLoad(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads, o.LoadTimeout = 1, time.Second })
		began, finish := make(chan struct{}), make(chan struct{})
		go func() { // it does not heed its context, so it keeps its place
			_, _ = c.Get(t.Context(), "holds the place", func(context.Context) (string, error) { close(began); <-finish; return "v", nil })
		}()
		<-began
		var o table
		_, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
		if !errors.Is(err, ErrOverloaded) {
			t.Errorf("got %v", err)
		}
		close(finish)
		synctest.Wait()
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
		wantValues(t, got, err, "a", "b")
		want(t, "loads", o.loads(), "[[a b]]")
	})
}
