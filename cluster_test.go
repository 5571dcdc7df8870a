package stockade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// oddKeys are keys whose names could fall into different slots, or be no names at all.
var oddKeys = []string{"", "{", "}", "{}", "{}x", "x{}", "}{", "{{a}}", "{a}{b}", "a{tag}b", "%", "%7B", "\xff\x00", "a b", "{\xff}", strings.Repeat("x", 1<<16)}

func TestCluster(t *testing.T) {
	servers := redistest.Cluster(t)
	quiet := func(o *Options) {
		o.RedisTimeout, o.LeaseTTL = time.Second, 4*time.Second // a busy machine is no failure
		o.Observer.Redis = func(e RedisEvent) { t.Errorf("told of %+v", e) }
	}
	caches := openAll(t, 4, func() redis.UniversalClient { return servers.Client(t) }, quiet)
	t.Run("herd", func(t *testing.T) {
		keys := slices.Clone(oddKeys)
		for i := range 30 {
			keys = append(keys, fmt.Sprint(i))
		}
		origins := map[string]*origin[string]{}
		for _, key := range keys {
			origins[key] = &origin[string]{load: func(context.Context) (string, error) { time.Sleep(100 * time.Millisecond); return "v:" + key, nil }}
		}
		var wg sync.WaitGroup
		for _, c := range caches {
			for _, key := range keys {
				for range 3 {
					wg.Go(func() {
						if v, err := c.Get(t.Context(), key, origins[key].Load); v != "v:"+key || err != nil {
							t.Errorf("%.20q: got %.20q, %v", key, v, err)
						}
					})
				}
			}
		}
		wg.Wait()
		for key, o := range origins {
			if n := o.loads.Load(); n != 1 {
				t.Errorf("%.20q: %d loads", key, n)
			}
		}
		if err := caches[0].Invalidate(t.Context(), keys...); err != nil {
			t.Errorf("Invalidate of all: %v", err)
		}
		for _, key := range keys {
			if _, err := caches[1].Lookup(t.Context(), key); !errors.Is(err, ErrMiss) {
				t.Errorf("%.20q afterwards: %v", key, err)
			}
		}
	})
	t.Run("many", func(t *testing.T) {
		all := append(numbered(300), oddKeys...)
		o := table{before: func(context.Context, []string) error { time.Sleep(100 * time.Millisecond); return nil }}
		var wg sync.WaitGroup
		for i, c := range caches {
			wg.Go(func() {
				keys := all[i*20:]
				got, err := c.GetMany(t.Context(), keys, o.load)
				wantValues(t, got, err, keys...)
			})
		}
		wg.Wait()
		loads := o.perKey()
		for _, key := range all {
			if n := loads[key]; n != 1 {
				t.Errorf("%.20q: %d loads", key, n)
			}
		}
		got, err := caches[3].GetMany(t.Context(), all, o.load)
		wantValues(t, got, err, all...)
		if err := caches[0].Invalidate(t.Context(), all...); err != nil {
			t.Errorf("Invalidate of all: %v", err)
		}
	})
	t.Run("failure", func(t *testing.T) {
		o := fails(20*time.Millisecond, errSource)
		var wg sync.WaitGroup
		for _, c := range caches {
			wg.Go(func() {
				if _, err := c.Get(t.Context(), "failing", o.Load); err == nil {
					t.Error("no failure")
				}
			})
		}
		wg.Wait()
		wantLoads(t, o, 1)
	})
	t.Run("stale", func(t *testing.T) {
		soft := caches[0].With(Policy{TTL: time.Hour, StaleFor: time.Hour})
		for i := range 10 {
			if err := soft.Set(t.Context(), fmt.Sprint("soft ", i), "v"); err != nil {
				t.Error(err)
			}
		}
		if err := caches[1].Expire(t.Context(), "soft 0", "soft 1", "soft 2", "soft 3", "soft 4"); err != nil {
			t.Error(err)
		}
		for i := range 10 {
			e, err := caches[2].Lookup(t.Context(), fmt.Sprint("soft ", i))
			if err != nil || (e.Source == Stale) != (i < 5) {
				t.Errorf("%d: got %+v, %v", i, e, err)
			}
		}
	})
}

// Reads go to masters, whatever the client's routing is: what was written is seen at once.
func TestClusterReplicaRouting(t *testing.T) {
	servers := redistest.Cluster(t)
	for name, route := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		t.Run(name, func(t *testing.T) {
			caches := openAll(t, 2, func() redis.UniversalClient { return servers.Client(t, route) })
			for i := range 200 {
				key, v := fmt.Sprint(i%20), fmt.Sprint(name, i)
				if i%2 == 0 {
					if err := caches[0].Set(t.Context(), key, v); err != nil {
						t.Fatal(err)
					}
				} else if err := caches[0].Invalidate(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if got, err := caches[1].Get(t.Context(), key, returns(v).Load); got != v || err != nil {
					t.Errorf("got %q, %v, want %q", got, err, v)
				}
			}
		})
	}
	for _, node := range servers.Nodes[len(servers.Nodes)/2:] {
		stats, err := node.Client(t).Info(t.Context(), "commandstats").Result()
		if err != nil || strings.Contains(stats, "cmdstat_get:") || strings.Contains(stats, "cmdstat_mget:") {
			t.Errorf("a replica was read: %v\n%s", err, stats)
		}
	}
}

// keysOf returns n keys for each master, the given master's first.
func keysOf(t testing.TB, servers *redistest.ClusterServers, c *Cache[string], n int) (first, others []string) {
	t.Helper()
	master := servers.Master(t, c.view.names("0").Value)
	for i := 0; len(first) < n || len(others) < n; i++ {
		key := fmt.Sprint(i)
		if servers.Master(t, c.view.names(key).Value) == master {
			first = append(first, key)
		} else {
			others = append(others, key)
		}
	}
	return first[:n], others[:n]
}

// times reads keys for a while, and returns how long the reads took, sorted.
func times(t testing.TB, c *Cache[string], keys []string, lasts time.Duration, o *origin[string]) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration // guarded by mu
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := i; time.Since(begun) < lasts; j++ {
				asked := time.Now()
				if v, err := c.Get(t.Context(), keys[j%len(keys)], o.Load); v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
				d := time.Since(asked)
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took
}

// A master that is frozen holds up its own keys, for RedisTimeout, and no others.
func TestClusterMasterFrozen(t *testing.T) {
	servers := redistest.Cluster(t)
	c := open[string](t, servers.Client(t))
	frozen, others := keysOf(t, servers, c, 10)
	for _, key := range slices.Concat(frozen, others) {
		if err := c.Set(t.Context(), key, "v"); err != nil {
			t.Fatal(err)
		}
	}
	o := slowly("v")
	before := times(t, c, others, time.Second, o)
	wantLoads(t, o, 0)
	master := servers.Master(t, c.view.names(frozen[0]).Value)
	master.Freeze(t)
	var local []time.Duration
	var during []time.Duration
	own := slowly("v")
	var wg sync.WaitGroup
	wg.Go(func() { local = times(t, c, frozen, time.Second, own) })
	wg.Go(func() { during = times(t, c, others, time.Second, o) })
	time.Sleep(300 * time.Millisecond)
	asked := time.Now()
	err := c.Invalidate(t.Context(), slices.Concat(frozen, others)...)
	if took := time.Since(asked); took > testTimeout+400*time.Millisecond {
		t.Errorf("Invalidate took %v", took)
	}
	var failed *KeysError
	if !errors.As(err, &failed) || len(failed.Errs) != len(frozen) {
		t.Errorf("Invalidate: got %v", err)
	} else {
		for _, key := range frozen {
			if !errors.Is(failed.Errs[key], ErrRedis) {
				t.Errorf("Invalidate of %s: got %v", key, failed.Errs[key])
			}
		}
	}
	wg.Wait()
	p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100] }
	t.Logf("p99 of the others: before %v, during %v; of its own keys %v, slowest %v", p99(before), p99(during), p99(local), local[len(local)-1])
	if p99(during) > 2*p99(before)+testLoad+50*time.Millisecond { // the invalidation makes them load
		t.Errorf("p99 of the others: before %v, during %v", p99(before), p99(during))
	}
	if slowest := local[len(local)-1]; slowest > testTimeout+testLoad+400*time.Millisecond {
		t.Errorf("a read of the frozen master took %v", slowest)
	}
	if p50 := local[len(local)/2]; p50 > 2*testLoad {
		t.Errorf("half of the reads of the frozen master took %v", p50)
	}
	master.Thaw(t)
	redistest.Eventually(t, 20*time.Second, "its keys are stored again", func() bool {
		if err := c.Set(t.Context(), frozen[0], "again"); err != nil {
			return false
		}
		e, err := c.Lookup(t.Context(), frozen[0])
		return err == nil && e.Value == "again"
	})
}

// A master that dies: its keys are loaded here until its replica takes over, and then work again by themselves.
func TestClusterMasterKilled(t *testing.T) {
	servers := redistest.Cluster(t)
	caches := openAll(t, 2, func() redis.UniversalClient { return servers.Client(t) })
	c := caches[0]
	if err := c.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	master := servers.Master(t, c.view.names("k").Value)
	killed := time.Now()
	master.Kill()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var slowest atomic.Int64
	for _, c := range caches {
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					asked := time.Now()
					if v, err := c.Get(t.Context(), "k", slowly("v").Load); v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
					slowest.Store(max(slowest.Load(), int64(time.Since(asked))))
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
	}
	redistest.Eventually(t, 60*time.Second, "it works again", func() bool {
		return c.Set(t.Context(), "k", "v") == nil && caches[1].Invalidate(t.Context(), "k") == nil
	})
	took := time.Since(killed)
	t.Logf("works %v after the death of a master; the slowest read took %v", took, time.Duration(slowest.Load()))
	if took > redistest.NodeTimeout+10*time.Second { // 2 to 4 s on a machine that is not busy
		t.Errorf("works only %v after the death of a master", took)
	}
	if d := time.Duration(slowest.Load()); d > 4*testTimeout {
		t.Errorf("the slowest read took %v", d)
	}
	redistest.Eventually(t, 10*time.Second, "reads hit again", func() bool { e, err := caches[1].Lookup(t.Context(), "k"); return err == nil && e.Value == "v" })
	close(stop)
	wg.Wait()
}

// Messages cross the nodes of a cluster, and the subscription survives the death of the node that it was made on.
func TestClusterLocalTiers(t *testing.T) {
	servers := redistest.Cluster(t)
	caches := openAll(t, 3, func() redis.UniversalClient { return servers.Client(t) }, withLocal, func(o *Options) {
		o.RedisTimeout, o.LeaseTTL = time.Second, 4*time.Second // a busy machine is no failure
	})
	cohere(t, caches, shortKeys())
	servers.Master(t, "test:wake").Kill()
	redistest.Eventually(t, 60*time.Second, "a replica has taken over", func() bool {
		for _, key := range shortKeys() {
			for _, c := range caches {
				if c.Set(t.Context(), key, "v") != nil || !c.view.local.live.Load() {
					return false
				}
			}
		}
		return true
	})
	cohere(t, caches, shortKeys())
}

func TestSentinelLocalTiers(t *testing.T) {
	servers := redistest.Sentinel(t, 1)
	caches := openAll(t, 2, func() redis.UniversalClient { return servers.Client(t) }, withLocal)
	cohere(t, caches, []string{"a", "b"})
	servers.Master(t).Kill()
	redistest.Eventually(t, 60*time.Second, "the replica has taken over", func() bool {
		for _, c := range caches {
			if c.Set(t.Context(), "a", "v") != nil || !c.view.local.live.Load() {
				return false
			}
		}
		return true
	})
	cohere(t, caches, []string{"a", "b"})
}

// A failover by Sentinel: it works again by itself.
func TestSentinelFailover(t *testing.T) {
	servers := redistest.Sentinel(t, 1)
	caches := openAll(t, 2, func() redis.UniversalClient { return servers.Client(t) })
	if err := caches[0].Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	servers.Master(t).Kill()
	redistest.Eventually(t, 60*time.Second, "it works again", func() bool {
		for _, c := range caches {
			asked := time.Now()
			if v, err := c.Get(t.Context(), "other", slowly("v").Load); v != "v" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
			if took := time.Since(asked); took > 4*testTimeout {
				t.Errorf("a read took %v", took)
			}
		}
		return caches[0].Set(t.Context(), "k", "new") == nil
	})
	t.Logf("works %v after the death of the master", time.Since(killed))
	redistest.Eventually(t, 10*time.Second, "the other sees it", func() bool { e, err := caches[1].Lookup(t.Context(), "k"); return err == nil && e.Value == "new" })
	o := slowly("v")
	var wg sync.WaitGroup
	for _, c := range caches {
		for range 20 {
			wg.Go(func() {
				if v, err := c.Get(t.Context(), "herd", o.Load); v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
	}
	wg.Wait()
	wantLoads(t, o, 1)
}
