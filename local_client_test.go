package stockade

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// cohere changes keys by each cache in turn and sees that all local tiers follow.
func cohere(t *testing.T, caches []*Cache[string], keys []string) {
	t.Helper()
	for i, c := range caches {
		_, _ = c.Lookup(t.Context(), "begins to listen")
		redistest.Eventually(t, 30*time.Second, fmt.Sprintf("cache %d hears of changes", i), c.view.local.live.Load)
	}
	for _, key := range keys {
		var db variable
		db.write("old")
		if err := caches[0].Invalidate(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		for name, change := range changesOf {
			for i, by := range caches {
				for _, c := range caches {
					redistest.Eventually(t, 10*time.Second, "it is in the local tier", func() bool {
						_, _ = c.Get(t.Context(), key, db.load)
						e, err := c.Lookup(t.Context(), key)
						return err == nil && e.Source == Local && e.Value == *db.Load()
					})
				}
				db.write(fmt.Sprint(name, i))
				if err := change(by, key, *db.Load()); err != nil {
					t.Fatalf("%s of %.20q: %v", name, key, err)
				}
				if v, err := by.Get(t.Context(), key, db.load); v != *db.Load() || err != nil {
					t.Errorf("%s of %.20q: who did it got %q, %v", name, key, v, err)
				}
				for _, c := range caches {
					redistest.Eventually(t, 10*time.Second, "the change is heard of", func() bool {
						v, err := c.Get(t.Context(), key, db.load)
						return err == nil && v == *db.Load()
					})
				}
			}
		}
	}
}

func shortKeys() []string {
	return []string{"a", "b", "{a}b", "100%", "{}", "", "%7B", "a b", "\xff\x00"}
}

func TestLocalTiersOfAllProtocols(t *testing.T) {
	s := redistest.Real(t)
	for name, change := range map[string]func(*redis.Options){
		"RESP2":                    func(o *redis.Options) { o.Protocol = 2 },
		"RESP3":                    func(o *redis.Options) { o.Protocol = 3 },
		"the client caches too":    func(o *redis.Options) { o.Protocol, o.ClientSideCacheConfig = 3, &redis.ClientSideCacheConfig{} },
		"contexts end its calls":   func(o *redis.Options) { o.ContextTimeoutEnabled = true },
		"a pool of one connection": func(o *redis.Options) { o.PoolSize = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			prefix := func(o *Options) { o.Prefix = "test " + name }
			cohere(t, openAll(t, 2, func() redis.UniversalClient { return s.Client(t, change) }, withLocal, prefix), shortKeys())
		})
	}
}

func TestLocalTiersOfARing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient(t)
		shards := []redistest.Server{redistest.Fake(t), redistest.Fake(t), redistest.Fake(t)}
		cohere(t, openAll(t, 2, func() redis.UniversalClient { return redistest.Ring(t, shards) }, withLocal), shortKeys())
	})
}
