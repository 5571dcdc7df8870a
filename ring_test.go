package stockade

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A ring of three shards is one cache. One shard that is down costs its own keys loads, for as long as the ring keeps
// to it, and the others nothing.
func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient(t)
		var shards []redistest.Server
		var last *redistest.Proxy
		for range 3 {
			last = redistest.NewProxy(t, redistest.Fake(t))
			shards = append(shards, proxied{last})
		}
		caches := openAll(t, 4, func() redis.UniversalClient { return redistest.Ring(t, shards) })
		herd := func(name string) (loads int64) {
			origins := make([]*origin[string], 30)
			var wg sync.WaitGroup
			for i := range origins {
				origins[i] = slowly(fmt.Sprint(i))
				for _, c := range caches {
					wg.Go(func() {
						asked := time.Now()
						if v, err := c.Get(t.Context(), fmt.Sprint(name, i), origins[i].Load); v != fmt.Sprint(i) || err != nil {
							t.Errorf("got %q, %v", v, err)
						}
						if took := time.Since(asked); took > testTimeout+testLoad+firstAwokenPoll*2 {
							t.Errorf("took %v", took)
						}
					})
				}
			}
			wg.Wait()
			for _, o := range origins {
				loads += o.loads.Load()
			}
			return loads
		}
		want(t, "loads of 30 keys", herd("first"), 30)
		keys := []string{"first0", "first1", "first2", "first3", "first4", "first5"}
		if err := caches[0].Invalidate(t.Context(), keys...); err != nil {
			t.Error(err)
		}
		for _, key := range keys {
			if _, err := caches[1].Lookup(t.Context(), key); err != ErrMiss { //nolint:errorlint // nothing else is known
				t.Errorf("%s: got %v", key, err)
			}
		}

		last.Refuse(true)
		last.Cut()
		if loads := herd("down"); loads < 30 || loads > 4*30 {
			t.Errorf("%d loads of 30 keys with a shard down", loads)
		}
		time.Sleep(10 * time.Second) // the ring gives the shard's keys to the others
		want(t, "loads of 30 keys on two shards", herd("two"), 30)
		last.Refuse(false)
		time.Sleep(10 * time.Second)
		herd("three") // the first call to the shard asks for a sign of life
		time.Sleep(testTimeout)
		want(t, "loads of 30 keys on three shards again", herd("four"), 30)
	})
}

// proxied is a server behind a proxy.
type proxied struct{ *redistest.Proxy }

func (proxied) Options() *redis.Options { panic("a ring has options of its own") }

func (proxied) Client(testing.TB, ...func(*redis.Options)) *redis.Client {
	panic("a ring makes its clients")
}
