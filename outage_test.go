package stockade

import (
	"context"
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
			t.Parallel()
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

func hasRecovered(e RedisEvent) bool { return e.Err == nil }

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
		patient(t)
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
