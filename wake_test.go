package stockade

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// lag loads a key in one cache while others wait for it, and returns how much later than the load's end each had it.
func lag(t testing.TB, holder *Cache[string], waiters []*Cache[string], key string, load time.Duration, during func()) []time.Duration {
	t.Helper()
	began := make(chan struct{})
	var ended atomic.Int64
	zero := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := holder.Get(t.Context(), key, func(context.Context) (string, error) {
			close(began)
			time.Sleep(load)
			ended.Store(int64(time.Since(zero)))
			return "v", nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-began
	lags := make([]time.Duration, len(waiters))
	o := returns("own")
	for i, c := range waiters {
		wg.Go(func() {
			if v, err := c.Get(t.Context(), key, o.Load); v != "v" || err != nil {
				t.Errorf("a waiter got %q, %v", v, err)
			}
			lags[i] = time.Since(zero) - time.Duration(ended.Load())
		})
	}
	if during != nil {
		during()
	}
	wg.Wait()
	slices.Sort(lags)
	return lags
}

// openAll opens n caches with a client each.
func openAll(t testing.TB, n int, client func() redis.UniversalClient, change ...func(*Options)) []*Cache[string] {
	t.Helper()
	caches := make([]*Cache[string], n)
	for i := range caches {
		caches[i] = open[string](t, client(), change...)
	}
	return caches
}

func TestWaitersAreWoken(t *testing.T) {
	s := redistest.Real(t)
	caches := openAll(t, 10, func() redis.UniversalClient { return s.Client(t) })
	lag(t, caches[0], caches[1:], "first", 200*time.Millisecond, nil) // until all have subscribed
	var lags []time.Duration
	for round := range 20 {
		lags = append(lags, lag(t, caches[round%2], caches[2:], fmt.Sprint(round), 150*time.Millisecond, nil)...)
	}
	slices.Sort(lags)
	p50, p99 := lags[len(lags)/2], lags[len(lags)*99/100]
	t.Logf("after the load: p50 %v, p99 %v", p50, p99)
	if p50 > 20*time.Millisecond || p99 > 150*time.Millisecond { // 1 and 5 ms on a machine that is not busy
		t.Errorf("after the load: p50 %v, p99 %v", p50, p99)
	}
	var polls, wakes uint64
	for _, c := range caches {
		polls, wakes = polls+c.Stats().Polls, wakes+c.Stats().Wakes
	}
	t.Logf("%d wakes, %d polls", wakes, polls)
}

// eachSilence runs a test in a bubble for each way in which messages get lost. Waiters get their client from it.
func eachSilence(t *testing.T, f func(t *testing.T, s *redistest.FakeServer, client func() redis.UniversalClient, silence func())) {
	t.Helper()
	for name, silence := range map[string]func(*redistest.Proxy){
		"the subscription is closed":           (*redistest.Proxy).Cut,
		"the subscription is closed for good":  func(p *redistest.Proxy) { p.Refuse(true); p.Cut() },
		"the subscription is silently dead":    func(p *redistest.Proxy) { p.Swallow(true) },
		"the subscription takes a while":       func(p *redistest.Proxy) { p.Delay(time.Minute) },
		"the subscription is held, then comes": (*redistest.Proxy).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				patient(t)
				s := redistest.Fake(t)
				p := redistest.NewProxy(t, s)
				client := func() redis.UniversalClient { return twoWays{s.Client(t), p.Client(t)} }
				f(t, s, client, func() { silence(p) })
			})
		})
	}
}

// twoWays is a client whose subscriptions go through another.
type twoWays struct {
	*redis.Client
	subscriptions *redis.Client
}

func (c twoWays) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.subscriptions.Subscribe(ctx, channels...)
}

// I8, I12: a wake that is lost prolongs a wait by at most one poll, and a waiter does not ask more often for it.
func TestLostWakes(t *testing.T) {
	eachSilence(t, func(t *testing.T, s *redistest.FakeServer, client func() redis.UniversalClient, silence func()) {
		caches := openAll(t, 3, client)
		lag(t, caches[0], caches[1:], "first", time.Second, nil)
		for _, load := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second} {
			for i := range 10 {
				before := caches[1].Stats()
				lags := lag(t, caches[0], caches[1:], fmt.Sprint(load, i), load, silence)
				if most := lags[len(lags)-1]; most > lastPoll*5/4+time.Millisecond*2 && most > load {
					t.Errorf("a load of %v: waited %v longer", load, most)
				}
				asked := caches[1].Stats().Polls + caches[1].Stats().Wakes - before.Polls - before.Wakes
				if most := 12 + uint64(load/(lastPoll/2)); asked > most {
					t.Errorf("a load of %v: asked %d times", load, asked)
				}
			}
		}
	})
}

// A subscription that is killed while the lease is given back.
func TestASubscriptionThatIsKilledAtTheRelease(t *testing.T) {
	s := redistest.Real(t)
	admin := s.Client(t)
	caches := openAll(t, 5, func() redis.UniversalClient { return s.Client(t) })
	lag(t, caches[0], caches[1:], "first", 100*time.Millisecond, nil)
	for round := range 15 {
		lags := lag(t, caches[0], caches[1:], fmt.Sprint(round), 50*time.Millisecond, func() {
			time.Sleep(48 * time.Millisecond)
			for range 4 {
				do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
				time.Sleep(time.Millisecond)
			}
		})
		if most := lags[len(lags)-1]; most > lastPoll+300*time.Millisecond {
			t.Errorf("waited %v longer", most)
		}
	}
}

// A client that may not subscribe polls.
func TestAClientThatMayNotSubscribe(t *testing.T) {
	s := redistest.NewReal(t)
	do(t, s.Client(t), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "-subscribe", "resetchannels")
	caches := openAll(t, 3, func() redis.UniversalClient {
		return s.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" })
	})
	for round := range 5 {
		lags := lag(t, caches[0], caches[1:], fmt.Sprint(round), 100*time.Millisecond, nil)
		if most := lags[len(lags)-1]; most > lastPoll+300*time.Millisecond {
			t.Errorf("waited %v longer", most)
		}
	}
}

// The lease is given back after the waiter was told that it is held, and before it waits.
func TestAReleaseBeforeTheWait(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		holder := open[string](t, s.Client(t))
		rdb := s.Client(t)
		hook := &after{name: "evalsha"}
		rdb.AddHook(hook)
		waiter := open[string](t, rdb)
		lag(t, holder, []*Cache[string]{waiter}, "first", 100*time.Millisecond, nil) // until it has subscribed
		for round := range 5 {
			began, finish, stored := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stored)
				_, err := holder.Get(t.Context(), fmt.Sprint(round), func(context.Context) (string, error) { close(began); <-finish; return "v", nil })
				if err != nil {
					t.Error(err)
				}
			}()
			<-began
			hook.then(func() { close(finish); <-stored; time.Sleep(10 * time.Millisecond) })
			asked := time.Now()
			if v, err := waiter.Get(t.Context(), fmt.Sprint(round), returns("own").Load); v != "v" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
			limit := firstAwokenPoll + 100*time.Millisecond
			if _, fake := s.(*redistest.FakeServer); fake {
				limit = 10 * time.Millisecond // no poll stands in for the wake
			}
			if took := time.Since(asked); took > limit {
				t.Errorf("took %v", took)
			}
		}
	})
}

// after is a hook that does something once a command has been answered, before the caller learns of it.
type after struct {
	redistest.Faults // for its DialHook

	name string
	mu   sync.Mutex
	f    func() // guarded by mu
}

func (h *after) then(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

func (h *after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == h.name {
			h.mu.Lock()
			f := h.f
			h.f = nil
			h.mu.Unlock()
			if f != nil {
				f()
			}
		}
		return err
	}
}

// A lease that is given back without a value goes to one of those who wait; the others wait on, for that one.
func TestAWakeThatSomebodyElseWon(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		caches := openAll(t, 8, func() redis.UniversalClient { return s.Client(t) }, unhurried)
		lag(t, caches[0], caches[1:], "first", 100*time.Millisecond, nil)
		var loads atomic.Int64
		var running atomic.Int64
		load := func(context.Context, *Entry[string]) (Entry[string], error) {
			if running.Add(1) > 1 {
				t.Error("two loads at once")
			}
			defer running.Add(-1)
			time.Sleep(20 * time.Millisecond)
			return Entry[string]{Value: "v", NoStore: loads.Add(1) < 5}, nil // the first four give the lease back
		}
		var wg sync.WaitGroup
		asked := time.Now()
		for _, c := range caches {
			wg.Go(func() {
				if e, err := c.Fetch(t.Context(), "k", load); e.Value != "v" || err != nil {
					t.Errorf("got %+v, %v", e, err)
				}
			})
		}
		wg.Wait()
		want(t, "loads", loads.Load(), 5)
		if took := time.Since(asked); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// I12: whatever happens at once to all that many wait for, they do not ask without pause.
func TestManyWaitersDoNotSpin(t *testing.T) {
	const waiters, lasts = 40, 3 * time.Second
	again := func(every time.Duration, what func()) {
		for range lasts / every {
			what()
			time.Sleep(every)
		}
	}
	key := func(i int) string { return fmt.Sprint(i) }
	for name, happens := range map[string]func(s *redistest.FakeServer, p *redistest.Proxy, c *Cache[string]){
		"nothing": func(*redistest.FakeServer, *redistest.Proxy, *Cache[string]) { time.Sleep(lasts) },
		"new connections": func(_ *redistest.FakeServer, p *redistest.Proxy, _ *Cache[string]) {
			again(300*time.Millisecond, p.Cut)
		},
		"messages": func(s *redistest.FakeServer, _ *redistest.Proxy, c *Cache[string]) {
			again(300*time.Millisecond, func() {
				for i := range waiters {
					for range 10 {
						s.Mini.Publish(c.view.channel, "i"+c.view.names(key(i)).Value)
					}
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				patient(t)
				s := redistest.Fake(t)
				p := redistest.NewProxy(t, s)
				rdb, sent := p.Client(t), &recorder{}
				rdb.AddHook(sent)
				c := open[string](t, rdb)
				for i := range waiters {
					crash(t, s, c, key(i), time.Hour)
				}
				var wg sync.WaitGroup
				for i := range waiters {
					wg.Go(func() {
						if v, err := c.Get(t.Context(), key(i), returns("v").Load); v != "v" || err != nil {
							t.Errorf("got %q, %v", v, err)
						}
					})
				}
				time.Sleep(2 * time.Second) // the polls have become slow
				before := sent.count("acquire")
				happens(s, p, c)
				each := float64(sent.count("acquire")-before) / waiters / lasts.Seconds()
				t.Logf("%.1f questions of each waiter in a second", each)
				if each > 15 {
					t.Errorf("%.1f questions of each waiter in a second", each)
				}
				before = sent.count("acquire")
				s.Mini.FlushAll()
				wg.Wait()
				if n := sent.count("acquire") - before; n > 2*waiters {
					t.Errorf("%d questions after a flush", n)
				}
			})
		})
	}
}

// What Redis forgets of the leases that many wait for must not make them ask without end.
func TestFlushUnderManyWaiters(t *testing.T) {
	s := redistest.Real(t)
	const keys = 1000
	most := func(o *Options) {
		o.MaxLoads = keys
		o.RedisTimeout, o.LeaseTTL = 2*time.Second, 8*time.Second // on a busy machine nobody may load without a lease
	}
	holder := open[string](t, s.Client(t), most)
	faults := redistest.NewFaults(t)
	rdb := s.Client(t)
	rdb.AddHook(faults)
	waiter := open[string](t, rdb, most)
	lag(t, holder, []*Cache[string]{waiter}, "first", 100*time.Millisecond, nil)
	finish := make(chan struct{})
	release := sync.OnceFunc(func() { close(finish) })
	t.Cleanup(release) // before the caches are closed, which wait for their loaders
	slow := func(context.Context) (string, error) { <-finish; return "v", nil }
	var wg sync.WaitGroup
	all := func(c *Cache[string]) {
		for k := range keys {
			wg.Go(func() {
				if v, err := c.Get(t.Context(), fmt.Sprint(k), slow); v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
	}
	all(holder)
	redistest.Eventually(t, 20*time.Second, "all load", func() bool { return holder.Stats().Loading == keys })
	all(waiter)
	redistest.Eventually(t, 20*time.Second, "all wait", func() bool {
		// On a busy machine a lease may expire, and the waiter loads.
		return waiter.Stats().Waits+waiter.Stats().Loads >= keys
	})
	admin := s.Client(t)
	before, begun := faults.Count(), time.Now()
	for range 5 {
		do(t, admin, "FLUSHALL")
		do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
		time.Sleep(300 * time.Millisecond)
	}
	rate := float64(faults.Count()-before) / time.Since(begun).Seconds()
	t.Logf("%.0f commands per second for %d waiters", rate, keys)
	if rate > 20*keys { // a poll each 250 ms is 4 each; a renewal and an acquire for each flush are 7
		t.Errorf("%.0f commands per second for %d waiters", rate, keys)
	}
	release()
	wg.Wait()
}
