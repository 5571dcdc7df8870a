package bloom

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

func BenchmarkMayExist(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := open(b, redistest.Real(b).Client(b), func(o *Options) { o.Keys = 1_000_000 })
			build(b, f, numbered("k", 100_000)...)
			keys := numbered("k", n)
			for b.Loop() {
				if _, err := f.MayExist(b.Context(), keys); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	f := open(b, redistest.Real(b).Client(b), func(o *Options) { o.Keys = 1_000_000 })
	build(b, f)
	keys := numbered("k", 100_000)
	for b.Loop() {
		if err := f.Fill(b.Context(), Keys(slices.Values(keys)), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(keys))/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkTenMillionKeys fills a filter to its capacity, and asks it for a million keys that it does not have.
func BenchmarkTenMillionKeys(b *testing.B) {
	const keys, lookups, part = 10_000_000, 1_000_000, 1000
	f := open(b, redistest.Real(b).Client(b), func(o *Options) { o.Keys = keys })
	all := func(yield func(string, error) bool) {
		for i := range keys {
			if !yield("key:"+strconv.Itoa(i), nil) {
				return
			}
		}
	}
	for b.Loop() {
		if err := f.Rebuild(b.Context(), all, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*keys)/b.Elapsed().Seconds(), "keys/s")
	positives := 0
	asked := make([]string, part)
	for i := range lookups / part {
		for j := range asked {
			asked[j] = "other:" + strconv.Itoa(i*part+j)
		}
		may, err := f.MayExist(b.Context(), asked)
		if err != nil {
			b.Fatal(err)
		}
		for _, yes := range may {
			if yes {
				positives++
			}
		}
	}
	b.ReportMetric(100*float64(positives)/lookups, "%false")
}

// BenchmarkGuard measures what asking the filter costs a miss whose load takes no time, in blocks that take turns with
// misses of a cache without a Guard.
func BenchmarkGuard(b *testing.B) {
	const per = 50
	s := redistest.Real(b)
	keys := numbered("k", 10_000)
	f := open(b, s.Client(b), func(o *Options) { o.Keys = 10_000 })
	build(b, f, keys...)
	miss := func(prefix string, guard stockade.Guard) func() time.Duration {
		c, err := stockade.New[string](s.Client(b), stockade.Options{Prefix: prefix, Guard: guard, TTL: time.Millisecond, AbsentTTL: time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		next := 0
		return func() time.Duration {
			begun := time.Now()
			for range per {
				key := keys[next%len(keys)]
				next++
				if v, err := c.Get(b.Context(), key, func(context.Context) (string, error) { return "v", nil }); v != "v" || err != nil {
					b.Errorf("%s: got %q, %v", key, v, err)
				}
			}
			return time.Since(begun)
		}
	}
	guarded, plain := miss("guarded", f), miss("plain", nil)
	var g, p []time.Duration
	for b.Loop() {
		g, p = append(g, guarded()), append(p, plain())
	}
	slices.Sort(g)
	slices.Sort(p)
	b.ReportMetric(float64(p[len(p)/2])/per, "ns/miss")
	b.ReportMetric(float64(g[len(g)/2])/float64(p[len(p)/2]), "guarded/miss")
	b.ReportMetric(0, "ns/op")
}
