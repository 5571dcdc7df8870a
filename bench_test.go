package stockade

import (
	"context"
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

func benchmarkHit(b *testing.B, s redistest.Server, size, callers, keys int) {
	rdb := s.Client(b, func(o *redis.Options) { o.PoolSize = 0 })
	c := open[[]byte](b, rdb)
	ctx := context.Background()
	value := make([]byte, size)
	for i := range keys {
		if err := c.Set(ctx, strconv.Itoa(i), value); err != nil {
			b.Fatal(err)
		}
		if err := rdb.Set(ctx, "raw"+strconv.Itoa(i), value, time.Hour).Err(); err != nil {
			b.Fatal(err)
		}
	}
	load := func(context.Context) ([]byte, error) { b.Error("load"); return nil, nil }
	ours := func(k string) {
		if _, err := c.Get(ctx, k, load); err != nil {
			b.Error(err)
		}
	}
	raw := func(k string) {
		if _, err := rdb.Get(ctx, "raw"+k).Bytes(); err != nil {
			b.Error(err)
		}
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	per := 100
	if callers > 1 {
		per = max(4000/callers, 20)
	}
	block := func(get func(string)) time.Duration {
		begun := time.Now()
		if callers == 1 {
			for range per {
				get(names[rand.IntN(keys)])
			}
			return time.Since(begun)
		}
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range per {
					get(names[rand.IntN(keys)])
				}
			})
		}
		wg.Wait()
		return time.Since(begun)
	}
	block(ours)
	block(raw)
	before := c.Stats()
	var a, r []float64
	for b.Loop() {
		if rand.IntN(2) == 0 {
			a = append(a, float64(block(ours)))
			r = append(r, float64(block(raw)))
		} else {
			r = append(r, float64(block(raw)))
			a = append(a, float64(block(ours)))
		}
	}
	after := c.Stats()
	b.ReportMetric(float64(after.Hits-before.Hits)/float64(after.Trips-before.Trips), "gets/trip")
	slices.Sort(a)
	slices.Sort(r)
	ma, mr := a[len(a)/2], r[len(r)/2]
	b.ReportMetric(ma/float64(per*callers), "ns/get")
	b.ReportMetric(mr/float64(per*callers), "ns/raw")
	b.ReportMetric(ma/mr, "time/raw")
	b.ReportMetric(mr/ma, "throughput/raw")
	b.ReportMetric(0, "ns/op")
}
