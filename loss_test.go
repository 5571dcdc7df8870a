package stockade

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I6: what Redis forgets costs one load more, of each key and for each time that it forgets.
func TestFlushUnderLoad(t *testing.T) {
	s := redistest.Real(t)
	const keys, flushes = 10, 20
	a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	origins := make([]*origin[string], keys)
	for k := range origins {
		origins[k] = slowly("v")
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			c := []*Cache[string]{a, b}[i%2]
			for {
				select {
				case <-stop:
					return
				default:
				}
				k := rand.IntN(keys)
				if v, err := c.Get(t.Context(), fmt.Sprint(k), origins[k].Load); v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	admin := s.Client(t)
	for range flushes {
		time.Sleep(rand.N(60 * time.Millisecond))
		do(t, admin, "FLUSHALL")
	}
	time.Sleep(100 * time.Millisecond)
	close(stop)
	wg.Wait()
	for k, o := range origins {
		if loads := o.loads.Load(); loads > 1+flushes {
			t.Errorf("key %d: %d loads for %d flushes", k, loads, flushes)
		}
	}
}

// scriptless makes the server forget its scripts before each step.
type scriptless struct{ admin *redis.Client }

func (h scriptless) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h scriptless) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.admin.ScriptFlush(context.Background())
		return next(ctx, cmd)
	}
}

func (h scriptless) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.admin.ScriptFlush(context.Background())
		return next(ctx, cmds)
	}
}

func TestScriptFlushBetweenSteps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		rdb.AddHook(scriptless{s.Client(t)})
		c := open[string](t, rdb, func(o *Options) {
			o.RedisTimeout, o.LeaseTTL = 500*time.Millisecond, 2*time.Second
			o.StaleFor = time.Hour
			o.Observer.Redis = func(e RedisEvent) { t.Errorf("told of %+v", e) }
		})
		long := &origin[string]{load: func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil }} // with a renewal
		for _, err := range []error{
			func() error { _, err := c.Get(t.Context(), "long", long.Load); return err }(),
			c.Set(t.Context(), "k", "v"), c.Expire(t.Context(), "k", "long"), c.Invalidate(t.Context(), "k"), c.Invalidate(t.Context(), "l", "m"),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Get(t.Context(), "failing", fails(0, errSource).Load); err == nil {
			t.Error("no failure")
		}
		if e, err := c.Lookup(t.Context(), "long"); err != nil || e.Source != Stale {
			t.Errorf("got %+v, %v", e, err)
		}
		want(t, "leases", leases(t, s), 0)
	})
}

// An evicted lease is a lost one: the callers get their value, and it is not stored over what came meanwhile.
func TestAnEvictedLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		admin := s.Client(t)
		c, other := open[string](t, s.Client(t)), open[string](t, s.Client(t))
		for _, taken := range []bool{false, true} { // by another holder, meanwhile
			began, finish := make(chan struct{}), make(chan struct{})
			slow := func(context.Context) (string, error) { close(began); <-finish; return "slow", nil }
			got := make(chan string, 1)
			go func() {
				v, err := c.Get(t.Context(), "k", slow)
				if err != nil {
					t.Error(err)
				}
				got <- v
			}()
			<-began
			if err := admin.Del(t.Context(), c.view.names("k").Lease).Err(); err != nil {
				t.Fatal(err)
			}
			if taken {
				if v, err := other.Get(t.Context(), "k", returns("other").Load); v != "other" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			}
			before := c.Stats().Rejected
			close(finish)
			want(t, "the callers got", <-got, "slow")
			want(t, "rejected", c.Stats().Rejected-before, 1)
			n, err := admin.Exists(t.Context(), c.view.names("k").Value).Result()
			if err != nil || n != 0 && !taken {
				t.Errorf("%d stored, %v", n, err)
			}
			if e, err := c.Lookup(t.Context(), "k"); taken && (err != nil || e.Value != "other") {
				t.Errorf("got %q, %v", e.Value, err)
			}
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

var evictions = []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"}

// The same by a server that evicts: whatever the policy takes, nothing fails.
func TestEviction(t *testing.T) {
	s := redistest.NewReal(t)
	admin := s.Client(t)
	for _, policy := range evictions {
		do(t, admin, "FLUSHALL")
		do(t, admin, "CONFIG", "SET", "maxmemory", "6mb", "maxmemory-policy", policy)
		c := open[string](t, s.Client(t))
		began, finish := make(chan struct{}), make(chan struct{})
		done := make(chan error, 1)
		go func() {
			v, err := c.Get(t.Context(), "k", func(context.Context) (string, error) { close(began); <-finish; return "v", nil })
			if err == nil && v != "v" {
				err = fmt.Errorf("got %q", v)
			}
			done <- err
		}()
		<-began
		filler := make([]byte, 100_000)
		pipe := admin.Pipeline()
		for i := range 300 {
			pipe.Set(t.Context(), fmt.Sprint("filler", i), filler, time.Minute)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := leases(t, s)
		if held > 0 && policy == "volatile-ttl" {
			t.Error("the lease was not evicted: the test shows nothing")
		}
		close(finish)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", policy, err)
		}
		if rejected := c.Stats().Rejected; held == 0 && rejected != 1 {
			t.Errorf("%s: the lease was evicted, and %d commits rejected", policy, rejected)
		}
		if v, err := c.Get(t.Context(), "k", returns("v").Load); v != "v" || err != nil {
			t.Errorf("%s: got %q, %v", policy, v, err)
		}
	}
}

// A server that is started anew has no data, no scripts and no subscriptions. Nobody fails meanwhile, and all of it comes
// back by itself.
func TestARestart(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := redistest.NewReal(t)
	caches := openAll(t, 3, func() redis.UniversalClient { return s.Client(t) }, func(o *Options) { o.RedisTimeout = 2 * testTimeout })
	lag(t, caches[0], caches[1:], "first", 200*time.Millisecond, nil) // until all have subscribed
	o := slowly("v")
	read := func() bool {
		hits := 0
		for _, c := range caches {
			e, err := c.Fetch(t.Context(), "k", func(ctx context.Context, _ *Entry[string]) (Entry[string], error) {
				v, err := o.Load(ctx)
				return Entry[string]{Value: v}, err
			})
			if e.Value != "v" || err != nil {
				t.Fatalf("got %q, %v", e.Value, err)
			}
			if e.Source == Hit {
				hits++
			}
		}
		return hits == len(caches)
	}
	redistest.Eventually(t, 5*time.Second, "all hit", read)
	s.Kill()
	for range 20 {
		read()
		time.Sleep(10 * time.Millisecond)
	}
	s.Restart(t)
	redistest.Eventually(t, 5*time.Second, "all hit again", read)
	for _, c := range caches[1:] {
		redistest.Eventually(t, 30*time.Second, "it listens again", c.view.bus.Live)
	}
	before := caches[1].Stats().Wakes
	lag(t, caches[0], caches[1:2], "last", 200*time.Millisecond, nil)
	if caches[1].Stats().Wakes == before {
		t.Error("the waiter was not woken")
	}
}
