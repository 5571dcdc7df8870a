package stockade

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// BenchmarkLocalHit measures Get on what the local tier has against the Get of a bare otter cache, whose entries expire
// or do not, and against a hit in Redis, in blocks that take turns. The ratios are medians of blocks.
func BenchmarkLocalHit(b *testing.B) {
	s := redistest.Real(b)
	for _, callers := range []int{1, 4, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			const keys, per = 1000, 20_000
			rdb := s.Client(b, func(o *redis.Options) { o.PoolSize = 0 })
			local := open[[]byte](b, rdb, func(o *Options) { o.TTL, o.EarlyRefresh, o.Local.Entries = time.Hour, 1, 2*keys })
			remote := open[[]byte](b, rdb, func(o *Options) { o.Prefix, o.TTL = "remote", time.Hour })
			expiring := otter.Must(&otter.Options[string, []byte]{
				MaximumSize: 2 * keys, ExpiryCalculator: otter.ExpiryWriting[string, []byte](time.Hour),
			})
			defer expiring.StopAllGoroutines()
			plain := otter.Must(&otter.Options[string, []byte]{MaximumSize: 2 * keys})

			ctx := context.Background()
			value := make([]byte, 100)
			load := func(context.Context) ([]byte, error) { return value, nil }
			names := make([]string, keys)
			get := func(c *Cache[[]byte], key string) {
				if _, err := c.Get(ctx, key, load); err != nil {
					b.Error(err)
				}
			}
			fill := func() {
				for i := range names {
					names[i] = strconv.Itoa(i)
					get(local, names[i])
					get(remote, names[i])
					expiring.Set(names[i], value)
					plain.Set(names[i], value)
				}
			}
			fill()
			redistest.Eventually(b, 10*time.Second, "changes are heard of", local.view.local.live.Load)
			fill()

			block := func(per int, get func(key string)) func() float64 {
				return func() float64 {
					begun := time.Now()
					var wg sync.WaitGroup
					for c := range callers {
						wg.Go(func() {
							for i := range per {
								get(names[(c*7919+i*31)%keys])
							}
						})
					}
					wg.Wait()
					return float64(time.Since(begun)) / float64(per*callers)
				}
			}
			contestants := []func() float64{
				block(per, func(key string) { get(local, key) }),
				block(per, func(key string) {
					if _, ok := expiring.GetIfPresent(key); !ok {
						b.Error("missing")
					}
				}),
				block(per, func(key string) {
					if _, ok := plain.GetIfPresent(key); !ok {
						b.Error("missing")
					}
				}),
				block(20, func(key string) { get(remote, key) }),
			}
			took := make([][]float64, len(contestants))
			for b.Loop() {
				for i, f := range contestants {
					took[i] = append(took[i], f())
				}
			}
			m := median(took[0])
			b.ReportMetric(m, "ns/get")
			b.ReportMetric(m/median(took[1]), "time/otter")
			b.ReportMetric(m/median(took[2]), "time/unexpiring-otter")
			b.ReportMetric(median(took[3])/m, "redis/time")
			b.ReportMetric(0, "ns/op")
			if n := local.Stats().Loads; n > 2*keys {
				b.Errorf("%d loads", n)
			}
		})
	}
}
