package stockade

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// outages are the ways in which a server stops to answer, and how each ends.
var outages = map[string]struct{ begin, end func(*redistest.Proxy) }{
	"refused": {
		func(p *redistest.Proxy) { p.Refuse(true); p.Cut() },
		func(p *redistest.Proxy) { p.Refuse(false) },
	},
	"black hole": {
		func(p *redistest.Proxy) { p.Swallow(true) },
		func(p *redistest.Proxy) { p.Swallow(false) },
	},
	"frozen": {(*redistest.Proxy).Freeze, (*redistest.Proxy).Thaw},
	"slow": {
		func(p *redistest.Proxy) { p.Delay(400 * time.Millisecond) },
		func(p *redistest.Proxy) { p.Delay(0) },
	},
}

// eachOutage runs a test on each outage, in a bubble.
func eachOutage(t *testing.T, f func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func())) {
	t.Helper()
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				patient(t)
				s := redistest.Fake(t)
				p := redistest.NewProxy(t, s)
				f(t, s, p, func() { outage.begin(p) }, func() { outage.end(p) })
			})
		})
	}
}

// patient lets the client's attempts to connect end before their bubble: each looks only once a second whether the
// client is closed.
func patient(t *testing.T) { t.Cleanup(func() { time.Sleep(2 * time.Second) }) }

// events records what an Observer is told about Redis.
type events struct {
	mu   sync.Mutex
	list []RedisEvent // guarded by mu
}

func (e *events) watch(o *Options) {
	o.Observer.Redis = func(event RedisEvent) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, event)
	}
}

func (e *events) count(which func(RedisEvent) bool) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, event := range e.list {
		if which(event) {
			n++
		}
	}
	return n
}

func hasRecovered(e RedisEvent) bool  { return e.Err == nil }
func misconfigured(e RedisEvent) bool { return e.Misconfigured }

const (
	testTimeout = defaultRedisTimeout
	testLoad    = 20 * time.Millisecond
)

// slowly is an origin of one value that takes testLoad.
func slowly(v string) *origin[string] {
	return &origin[string]{load: func(context.Context) (string, error) { time.Sleep(testLoad); return v, nil }}
}

// I8: a read waits for a node that does not answer no longer than RedisTimeout, and once that is known not at all. The
// source is asked once a second for each key.
func TestReadsDuringAnOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		const keys, callers, lasts = 10, 30, 10 * time.Second
		faults := redistest.NewFaults(t)
		rdb := p.Client(t)
		rdb.AddHook(faults)
		var seen events
		c := open[string](t, rdb, seen.watch)
		for k := range keys {
			if err := c.Set(t.Context(), fmt.Sprint(k), "v"); err != nil {
				t.Fatal(err)
			}
		}
		origins := make([]*origin[string], keys)
		for k := range origins {
			origins[k] = slowly("v")
		}
		begun := time.Now()
		begin()
		var slowest, slowestLater atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for time.Since(begun) < lasts {
					k := rand.IntN(keys)
					asked := time.Now()
					if v, err := c.Get(t.Context(), fmt.Sprint(k), origins[k].Load); v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
					took := int64(time.Since(asked))
					if asked.Sub(begun) <= testTimeout+testLoad {
						slowest.Store(max(slowest.Load(), took))
					} else {
						slowestLater.Store(max(slowestLater.Load(), took))
					}
					time.Sleep(rand.N(10 * time.Millisecond))
				}
			})
		}
		wg.Wait()
		if took := time.Duration(slowest.Load()); took > testTimeout+testLoad {
			t.Errorf("the slowest read took %v", took)
		}
		if took := time.Duration(slowestLater.Load()); took > testLoad {
			t.Errorf("with an open breaker the slowest read took %v", took)
		}
		for k, o := range origins {
			if loads := o.loads.Load(); loads > int64(lasts/memoryTTL) {
				t.Errorf("key %d was loaded %d times in %v", k, loads, lasts)
			}
		}
		if probes := faults.Count("ping"); probes > int(lasts/testTimeout) {
			t.Errorf("%d probes in %v", probes, lasts)
		}
		end()
		redistest.Eventually(t, 3*testTimeout, "it works again", func() bool {
			v, err := c.Get(t.Context(), "0", origins[0].Load)
			if v != "v" || err != nil {
				t.Fatalf("got %q, %v", v, err)
			}
			time.Sleep(10 * time.Millisecond)
			return seen.count(hasRecovered) > 0
		})
		before := c.Stats()
		for k, o := range origins {
			if v, err := c.Get(t.Context(), fmt.Sprint(k), o.Load); v != "v" || err != nil {
				t.Errorf("after the outage: got %q, %v", v, err)
			}
		}
		want(t, "hits after the outage", c.Stats().Hits-before.Hits, keys)
		want(t, "recoveries told", seen.count(hasRecovered), 1)
	})
}

// everyCall makes each call of a cache once, on the given keys in turn.
func everyCall(c *Cache[string]) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Get": func(ctx context.Context) error { _, err := c.Get(ctx, "k", slowly("v").Load); return err },
		"Fetch": func(ctx context.Context) error {
			_, err := c.Fetch(ctx, "k2", func(ctx context.Context, _ *Entry[string]) (Entry[string], error) {
				v, err := slowly("v").Load(ctx)
				return Entry[string]{Value: v}, err
			})
			return err
		},
		"Lookup":     func(ctx context.Context) error { _, err := c.Lookup(ctx, "k"); return err },
		"Set":        func(ctx context.Context) error { return c.Set(ctx, "k", "v") },
		"SetEntry":   func(ctx context.Context) error { return c.SetEntry(ctx, "k", Entry[string]{Value: "v"}) },
		"Invalidate": func(ctx context.Context) error { return c.Invalidate(ctx, "k", "k2") },
		"Expire":     func(ctx context.Context) error { return c.Expire(ctx, "k", "k2") },
	}
}

// clients are settings that change what the client does while nobody answers.
var clients = map[string]func(*redis.Options){
	"default":          func(*redis.Options) {},
	"no time-outs":     func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 },
	"no retries":       func(o *redis.Options) { o.MaxRetries = -1 },
	"obeys contexts":   func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	"RESP2":            func(o *redis.Options) { o.Protocol = 2 },
	"quick time-outs":  func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = 20*time.Millisecond, 20*time.Millisecond },
	"many quick tries": func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 20*time.Millisecond, 100 },
}

// I8: every call returns by its deadline, whatever the client's options are.
func TestDeadlinesDuringAnOutage(t *testing.T) {
	const deadline = 200 * time.Millisecond
	for name, change := range clients {
		t.Run(name, func(t *testing.T) {
			eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
				for _, warm := range []bool{true, false} {
					c := open[string](t, p.Client(t, change))
					if warm {
						if err := c.Set(t.Context(), "k", "v"); err != nil {
							t.Fatal(err)
						}
					}
					begin()
					for op, call := range everyCall(c) {
						for range 3 {
							ctx, cancel := context.WithTimeout(t.Context(), deadline)
							asked := time.Now()
							err := call(ctx)
							if took := time.Since(asked); took > deadline+time.Millisecond {
								t.Errorf("%s took %v", op, took)
							}
							if isRead := op == "Get" || op == "Fetch"; err != nil && isRead && !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("%s: got %v", op, err)
							} else if !isRead && !errors.Is(err, ErrRedis) && !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("%s: got %v", op, err)
							}
							cancel()
						}
					}
					end()
					p.Cut() // whoever waits without a time-out
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// I8, on a real server and by the real clock.
func TestDeadlineOnAFrozenServer(t *testing.T) {
	s := redistest.NewReal(t)
	c := open[string](t, s.Client(t))
	if err := c.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Freeze(t)
	defer s.Thaw(t)
	for op, call := range everyCall(c) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		asked := time.Now()
		_ = call(ctx)
		took := time.Since(asked)
		t.Logf("%s: %v", op, took)
		if took > 400*time.Millisecond { // 250 ms on a machine that is not busy
			t.Errorf("%s took %v", op, took)
		}
		cancel()
	}
}

func TestCallsThatReturnErrRedis(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		c := open[string](t, p.Client(t), func(o *Options) { o.WhenRedisFails = ReturnError })
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		begin()
		for op, call := range everyCall(c) {
			asked := time.Now()
			if err := call(t.Context()); !errors.Is(err, ErrRedis) {
				t.Errorf("%s: got %v", op, err)
			}
			if took := time.Since(asked); took > testTimeout {
				t.Errorf("%s took %v", op, took)
			}
			time.Sleep(rand.N(2 * testTimeout))
		}
		want(t, "loads", c.Stats().Loads, 0)
		end()
	})
}

// What is remembered while Redis does not answer is not served once it does.
func TestNoRememberedValueAfterRecovery(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		a, b := open[string](t, p.Client(t)), open[string](t, s.Client(t))
		var source atomic.Value
		load := func(context.Context) (string, error) { return source.Load().(string), nil }
		for round := range 20 {
			old, newer := fmt.Sprint("old ", round), fmt.Sprint("new ", round)
			source.Store(old)
			begin()
			redistest.Eventually(t, time.Second, "the breaker opens", func() bool {
				v, err := a.Get(t.Context(), "k", load)
				if err != nil {
					t.Fatal(err)
				}
				return v == old && a.nodes.single.isOpen.Load()
			})
			end()
			redistest.Eventually(t, time.Second, "the breaker closes", func() bool {
				if _, err := a.Get(t.Context(), "k", load); err != nil {
					t.Fatal(err)
				}
				return !a.nodes.single.isOpen.Load()
			})
			source.Store(newer)
			if err := b.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if v, err := a.Get(t.Context(), "k", load); v != newer || err != nil {
				t.Errorf("got %q, %v, want %q", v, err, newer)
			}
			time.Sleep(7 * time.Second) // until the client has given up what it sent in the outage
		}
	})
}

// Nor is it served in the next outage.
func TestNoRememberedValueInTheNextOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		a, b := open[string](t, p.Client(t)), open[string](t, s.Client(t))
		if err := a.Set(t.Context(), "other", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		begin()
		remembered := time.Now()
		if v, err := a.Get(t.Context(), "k", returns("old").Load); v != "old" || err != nil {
			t.Fatalf("got %q, %v", v, err)
		}
		end()
		redistest.Eventually(t, time.Second, "the breaker closes", func() bool { _, err := a.Lookup(t.Context(), "other"); return err == nil })
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		begin()
		if v, err := a.Get(t.Context(), "k", returns("new").Load); v != "new" || err != nil {
			t.Errorf("%v later: got %q, %v", time.Since(remembered), v, err)
		}
		end()
	})
}

// A load without a lease saw the source before an invalidation that was acknowledged while Redis answered for a moment.
// Who came after that may not have it, though Redis is down again when the load ends.
func TestALoadFromBeforeARecovery(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		a, b := open[string](t, p.Client(t)), open[string](t, s.Client(t))
		if err := a.Set(t.Context(), "other", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		down := func() bool {
			_, err := a.Lookup(t.Context(), "other")
			return err != nil && a.nodes.single.isOpen.Load()
		}
		begin()
		redistest.Eventually(t, time.Second, "the breaker opens", down)
		finish, early := make(chan struct{}), make(chan string, 1)
		began := make(chan struct{})
		go func() {
			v, _ := a.Get(t.Context(), "k", func(context.Context) (string, error) { close(began); <-finish; return "old", nil })
			early <- v
		}()
		<-began
		end()
		redistest.Eventually(t, time.Second, "the breaker closes", func() bool { _, err := a.Lookup(t.Context(), "other"); return err == nil })
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second)
		begin()
		redistest.Eventually(t, time.Second, "the breaker opens again", down)
		late := make(chan string, 1)
		go func() {
			v, _ := a.Get(t.Context(), "k", returns("new").Load)
			late <- v
		}()
		time.Sleep(testTimeout)
		close(finish)
		want(t, "who came first got", <-early, "old")
		want(t, "who came after the invalidation got", <-late, "new")
		if v, err := a.Get(t.Context(), "k", returns("new").Load); v != "new" || err != nil {
			t.Errorf("who came after the load got %q, %v", v, err)
		}
		end()
	})
}

// A Set whose outcome is unknown is over when it returns: the write does not happen later.
func TestASetOfUnknownOutcomeDoesNotHappenLater(t *testing.T) {
	for _, deadline := range []time.Duration{0, 100 * time.Millisecond} {
		for _, known := range []bool{true, false} { // the server's clock
			synctest.Test(t, func(t *testing.T) {
				s := redistest.Fake(t)
				p := redistest.NewProxy(t, s)
				c, other := open[string](t, p.Client(t)), open[string](t, s.Client(t))
				warm := other // so that the server knows the step
				if known {
					warm = c
				}
				if err := warm.Set(t.Context(), "other", "v"); err != nil {
					t.Fatal(err)
				}
				p.Freeze()
				ctx, timeout := t.Context(), testTimeout
				if deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, deadline)
					defer cancel()
					timeout = deadline
				}
				asked := time.Now()
				if err := c.Set(ctx, "k", "v"); !errors.Is(err, ErrRedis) {
					t.Errorf("got %v", err)
				}
				want(t, "took", time.Since(asked), timeout)
				time.Sleep(time.Millisecond)
				p.Thaw()
				time.Sleep(time.Second)
				if e, err := other.Lookup(t.Context(), "k"); !errors.Is(err, ErrMiss) {
					t.Errorf("afterwards: got %q, %v", e.Value, err)
				}
			})
		}
	}
}

// The same when the clock was learnt from a request that took long to arrive, so that it may be wrong by half of that.
func TestASetDoesNotTrustASlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		p := redistest.NewProxy(t, s)
		rdb := p.Client(t)
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		c, other := open[string](t, rdb), open[string](t, s.Client(t))
		faults.Delay(1, redistest.Any, 200*time.Millisecond) // before it leaves
		if _, err := c.Lookup(t.Context(), "other"); !errors.Is(err, ErrMiss) {
			t.Fatal(err)
		}
		if err := other.Set(t.Context(), "other", "v"); err != nil { // so that the server knows the step
			t.Fatal(err)
		}
		p.Freeze()
		if err := c.Set(t.Context(), "k", "v"); !errors.Is(err, ErrRedis) {
			t.Errorf("got %v", err)
		}
		time.Sleep(20 * time.Millisecond)
		p.Thaw()
		time.Sleep(time.Second)
		if e, err := other.Lookup(t.Context(), "k"); !errors.Is(err, ErrMiss) {
			t.Errorf("afterwards: got %q, %v", e.Value, err)
		}
	})
}

// A request for a lease that the server executes when nobody waits for its answer any more leaves no lease.
func TestALateAcquireLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		p := redistest.NewProxy(t, s)
		rdb := p.Client(t)
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		c := open[string](t, rdb, func(o *Options) { o.WhenRedisFails = ReturnError })
		if _, err := c.Get(t.Context(), "other", returns("v").Load); err != nil { // so that the server knows the step
			t.Fatal(err)
		}
		reached, release := faults.Block(redistest.Named("evalsha"))
		failed := make(chan error)
		go func() { _, err := c.Get(t.Context(), "k", returns("v").Load); failed <- err }()
		<-reached
		p.Freeze()
		release()
		if err := <-failed; !errors.Is(err, ErrRedis) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Millisecond)
		p.Thaw()
		time.Sleep(100 * time.Millisecond)
		want(t, "leases", leases(t, s), 0)
	})
}

// MaxLoads bounds loads without a lease too.
func TestMaxLoadsDuringAnOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		const most, keys = 8, 200
		c := open[string](t, p.Client(t), func(o *Options) { o.MaxLoads = most })
		begin()
		var running, peak atomic.Int64
		var wg sync.WaitGroup
		for k := range keys {
			wg.Go(func() {
				v, err := c.Get(t.Context(), fmt.Sprint(k), func(context.Context) (string, error) {
					peak.Store(max(peak.Load(), running.Add(1)))
					defer running.Add(-1)
					time.Sleep(testLoad)
					return "v", nil
				})
				if v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		wg.Wait()
		if n := peak.Load(); n > most {
			t.Errorf("%d loads at once", n)
		}
		end()
	})
}

// A server that closed its idle connections is no outage, even for a client that tries only once and does not notice a
// closed connection before it writes (that of TLS).
func TestClosedIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		p := redistest.NewProxy(t, s)
		c := open[string](t, p.Client(t, func(o *redis.Options) { o.MaxRetries = -1; o.MinIdleConns = 5 }))
		o := returns("v")
		for range 20 {
			if err := c.Set(t.Context(), "k", "stored"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			p.Cut()
			if v, err := c.Get(t.Context(), "k", o.Load); v != "stored" || err != nil {
				t.Fatalf("got %q, %v", v, err)
			}
			time.Sleep(time.Second)
			p.Cut()
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			p.Cut()
			before := c.Stats().Hits
			for range 2 { // the load, and the hit that shows that it was stored
				if v, err := c.Get(t.Context(), "k", o.Load); v != "v" || err != nil {
					t.Fatalf("got %q, %v", v, err)
				}
			}
			want(t, "hits", c.Stats().Hits-before, 1)
		}
		wantLoads(t, o, 20)
	})
}
