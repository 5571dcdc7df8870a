package bloom

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// All names of a filter share a slot, and no replica is asked, whatever the client's routing is.
func TestClusterFilter(t *testing.T) {
	servers := redistest.Cluster(t)
	f := open(t, servers.Client(t, func(o *redis.ClusterOptions) { o.ReadOnly, o.RouteRandomly = true, true }), func(o *Options) { o.Keys, o.Rate = 1000, 1e-9 })
	f.design, _ = designFor(1000, 1e-9, 1<<13)
	for range 3 {
		if err := f.Rebuild(t.Context(), Keys(slices.Values(numbered("k", 500))), nil); err != nil {
			t.Fatal(err)
		}
		for _, key := range numbered("added", 500) {
			if err := f.Add(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			wantMay(t, f, true, key)
		}
		wantMay(t, f, true, numbered("k", 500)...)
		wantMay(t, f, false, numbered("x", 500)...)
	}
	if stats, err := f.Stats(t.Context()); err != nil || !stats.Built || stats.Shards < 4 {
		t.Errorf("got %+v, %v", stats, err)
	}
}
