package stockade

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

var advised = flag.Bool("advised", false, "benchmarks of hits use the client settings that the README advises")

// BenchmarkHit measures Get against the client's own Get, in blocks that take turns, so that both meet the same noise.
// The ratios are medians of blocks: time/raw of one caller, throughput/raw of many.
func BenchmarkHit(b *testing.B) {
	s := redistest.Real(b)
	for _, size := range []int{100, 1024, 64 << 10} {
		for _, callers := range []int{1, 4, 64, 512} {
			for _, keys := range []int{1000, 1} {
				if size == 64<<10 && callers == 512 {
					continue
				}
				b.Run(fmt.Sprintf("size=%d/callers=%d/keys=%d", size, callers, keys), func(b *testing.B) {
					benchmarkHit(b, s, size, callers, keys)
				})
			}
		}
	}
}

// hits are gets of both contestants on warm keys.
type hits struct {
	cache     *Cache[[]byte]
	ours, raw func(key string)
	keys      []string
}

func newHits(b *testing.B, s redistest.Server, size, keys int) hits {
	rdb := s.Client(b, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 0, *advised })
	h := hits{cache: open[[]byte](b, rdb)}
	ctx := context.Background()
	value := make([]byte, size)
	for i := range keys {
		key := strconv.Itoa(i)
		h.keys = append(h.keys, key)
		if err := h.cache.Set(ctx, key, value); err != nil {
			b.Fatal(err)
		}
		if err := rdb.Set(ctx, "raw"+key, value, time.Hour).Err(); err != nil {
			b.Fatal(err)
		}
	}
	load := func(context.Context) ([]byte, error) { b.Error("load"); return nil, nil }
	h.ours = func(key string) {
		if _, err := h.cache.Get(ctx, key, load); err != nil {
			b.Error(err)
		}
	}
	h.raw = func(key string) {
		if _, err := rdb.Get(ctx, "raw"+key).Bytes(); err != nil {
			b.Error(err)
		}
	}
	return h
}

func (h hits) key() string { return h.keys[rand.IntN(len(h.keys))] }

// inTurns measures blocks of both, in random order.
func inTurns(b *testing.B, ours, raw func() float64) (a, r []float64) {
	ours()
	raw()
	for b.Loop() {
		if rand.IntN(2) == 0 {
			a = append(a, ours())
			r = append(r, raw())
		} else {
			r = append(r, raw())
			a = append(a, ours())
		}
	}
	return a, r
}

func benchmarkHit(b *testing.B, s redistest.Server, size, callers, keys int) {
	h := newHits(b, s, size, keys)
	per := 100
	if callers > 1 {
		per = max(4000/callers, 20)
	}
	block := func(get func(string)) func() float64 {
		return func() float64 {
			begun := time.Now()
			if callers == 1 {
				for range per {
					get(h.key())
				}
				return float64(time.Since(begun))
			}
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range per {
						get(h.key())
					}
				})
			}
			wg.Wait()
			return float64(time.Since(begun))
		}
	}
	a, r := inTurns(b, block(h.ours), block(h.raw))
	stats := h.cache.Stats()
	ma, mr := median(a), median(r)
	b.ReportMetric(float64(stats.Hits)/float64(stats.Trips), "gets/trip")
	b.ReportMetric(ma/float64(per*callers), "ns/get")
	b.ReportMetric(mr/float64(per*callers), "ns/raw")
	b.ReportMetric(ma/mr, "time/raw")
	b.ReportMetric(mr/ma, "throughput/raw")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHitLatency compares the 99th percentile of 64 callers.
func BenchmarkHitLatency(b *testing.B) {
	s := redistest.Real(b)
	for _, keys := range []int{1000, 1} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			const callers, per = 64, 100
			h := newHits(b, s, 100, keys)
			p99 := func(get func(string)) func() float64 {
				return func() float64 {
					took := make([]time.Duration, callers*per)
					var wg sync.WaitGroup
					for i := range callers {
						wg.Go(func() {
							for j := range per {
								asked := time.Now()
								get(h.key())
								took[i*per+j] = time.Since(asked)
							}
						})
					}
					wg.Wait()
					slices.Sort(took)
					return float64(took[len(took)*99/100])
				}
			}
			a, r := inTurns(b, p99(h.ours), p99(h.raw))
			b.ReportMetric(median(a)/1e6, "ms-p99")
			b.ReportMetric(median(r)/1e6, "ms-p99-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkGetMany measures GetMany of 100 warm keys against 100 Gets and against the client's own MGET.
func BenchmarkGetMany(b *testing.B) {
	s := redistest.Real(b)
	ctx := context.Background()
	h := newHits(b, s, 100, 1000)
	rdb := s.Client(b)
	const page, per = 100, 20
	load := func(context.Context, []string) (map[string][]byte, error) { b.Error("load"); return nil, nil }
	block := func(get func(keys []string)) func() float64 {
		return func() float64 {
			begun := time.Now()
			for range per {
				first := rand.IntN(len(h.keys) - page)
				get(h.keys[first : first+page])
			}
			return float64(time.Since(begun))
		}
	}
	many := block(func(keys []string) {
		if values, err := h.cache.GetMany(ctx, keys, load); err != nil || len(values) != page {
			b.Error(len(values), err)
		}
	})
	gets := block(func(keys []string) {
		for _, key := range keys {
			h.ours(key)
		}
	})
	mget := block(func(keys []string) {
		names := make([]string, len(keys))
		for i, key := range keys {
			names[i] = "raw" + key
		}
		if values, err := rdb.MGet(ctx, names...).Result(); err != nil || len(values) != page {
			b.Error(len(values), err)
		}
	})
	var m, g, r []float64
	for b.Loop() {
		for _, i := range rand.Perm(3) {
			switch i {
			case 0:
				m = append(m, many())
			case 1:
				g = append(g, gets())
			default:
				r = append(r, mget())
			}
		}
	}
	b.ReportMetric(median(m)/per, "ns/page")
	b.ReportMetric(median(g)/median(m), "gets/many")
	b.ReportMetric(median(m)/median(r), "many/mget")
	b.ReportMetric(0, "ns/op")
}
