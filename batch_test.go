package stockade

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// perKey says how often each key was loaded.
func (o *table) perKey() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	loads := map[string]int{}
	for _, keys := range o.asked {
		for _, key := range keys {
			loads[key]++
		}
	}
	return loads
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

func wantValues(t testing.TB, got map[string]string, err error, keys ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("error: %v", err)
	}
	if want := valuesOf(keys); !maps.Equal(got, want) {
		t.Errorf("got %d values %.300v, want %d", len(got), got, len(want))
	}
}

func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%05d", i))
	}
	return keys
}

func inBubble(t *testing.T, f func(t *testing.T, s *redistest.FakeServer)) {
	synctest.Test(t, func(t *testing.T) { f(t, redistest.Fake(t)) })
}

// countRoundTrips counts those of a client from now on, without what greets a new connection.
func countRoundTrips(rdb *redis.Client) *atomic.Int64 {
	var n atomic.Int64
	rdb.AddHook(around{before: func(cmds []redis.Cmder, _ error) {
		if name := cmds[0].Name(); name != "hello" && name != "client" {
			n.Add(1)
		}
	}})
	return &n
}

func TestGetManyTakesThreeRoundTrips(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		c := open[string](t, rdb)
		var warm table
		_, _ = c.GetMany(t.Context(), []string{"warm"}, warm.load) // connections, scripts, the server's time
		trips := countRoundTrips(rdb)
		var o table
		keys := append(numbered(100), "absent")
		for _, want := range []int64{3, 1} { // read, acquire, commit; then read
			trips.Store(0)
			got, err := c.GetMany(t.Context(), keys, o.load)
			wantValues(t, got, err, keys...)
			if n := trips.Load(); n != want {
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

// A pipeline holds up a server for a short time only, whatever there is to send.
func TestABatchGoesInParts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		var mu sync.Mutex
		var counts, sizes []int // of pipelines
		rdb.AddHook(around{before: func(cmds []redis.Cmder, _ error) {
			size := 0
			for _, cmd := range cmds {
				for _, arg := range cmd.Args() {
					if b, ok := arg.([]byte); ok {
						size += len(b)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			counts, sizes = append(counts, len(cmds)), append(sizes, size)
		}})
		c := open[[]byte](t, rdb, unhurried)
		keys := numbered(600)
		got, err := c.GetMany(t.Context(), keys, func(_ context.Context, keys []string) (map[string][]byte, error) {
			values := map[string][]byte{}
			for _, key := range keys {
				values[key] = make([]byte, 10_000)
			}
			return values, nil
		})
		if err != nil || len(got) != len(keys) {
			t.Errorf("got %d values, %v", len(got), err)
		}
		want(t, "steps of the longest pipeline", slices.Max(counts), maxBatch)
		if most := slices.Max(sizes); most > pipelineBytes || most < pipelineBytes/2 {
			t.Errorf("the largest pipeline carries %d bytes", most)
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

// A caller leaves at its deadline with what it has; the load goes on.
func TestGetManyEndsWithItsContext(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		if err := c.Set(t.Context(), "stored", "v of stored"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		finish := make(chan struct{})
		o := table{before: func(context.Context, []string) error { cancel(); <-finish; return nil }}
		got, err := c.GetMany(ctx, []string{"a", "stored", "b"}, o.load)
		wantValues(t, got, nil, "stored")
		var keys *KeysError
		if !errors.As(err, &keys) || len(keys.Errs) != 2 || !errors.Is(keys.Errs["a"], context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(finish)
		redistest.Eventually(t, 10*time.Second, "stored", func() bool { return storedIn(c, "b") == "v of b" })
		if _, err := c.GetMany(ctx, []string{"a"}, o.load); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// A context that ends since something else was not found says nothing about the keys.
func TestGetManyEndsWithACauseThatIsNotFound(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		ctx, cancel := context.WithCancelCause(t.Context())
		o := table{before: func(context.Context, []string) error { cancel(ErrNotFound); time.Sleep(time.Second); return nil }}
		got, err := c.GetMany(ctx, []string{"a", "b"}, o.load)
		if err == nil {
			t.Errorf("ended context: got %v, %v", got, err)
		}
	})
}

// What has landed is returned when the context ends.
func TestGetManyReturnsWhatHasLanded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		began, finish := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = c.Get(t.Context(), "slow", func(context.Context) (string, error) { close(began); <-finish; return "v", nil })
		}()
		<-began
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var o table
		keys := append([]string{"slow"}, numbered(20)...)
		got, err := c.GetMany(ctx, keys, o.load)
		wantValues(t, got, nil, keys[1:]...)
		var failed *KeysError
		if !errors.As(err, &failed) || len(failed.Errs) != 1 || !errors.Is(failed.Errs["slow"], context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(finish)
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

// one makes a loader of one key of a batch loader.
func one[T any](load BatchLoader[T], key string) Loader[T] {
	return func(ctx context.Context) (T, error) {
		values, err := load(ctx, []string{key})
		return values[key], err
	}
}
