//go:build !race

// What a hit costs that is watched. The race detector takes memory and time of its own.

package otel

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// hitter returns a hit of a new cache, in its local tier or in Redis.
func hitter(t testing.TB, s redistest.Server, prefix string, entries int, observer stockade.Observer) (get func(), c *stockade.Cache[string]) {
	t.Helper()
	c, err := stockade.New[string](s.Client(t), stockade.Options{
		Prefix: prefix, TTL: time.Hour, Local: stockade.LocalOptions{Entries: entries}, Observer: observer,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx := context.Background()
	load := func(context.Context) (string, error) { return "v", nil }
	get = func() {
		if _, err := c.Get(ctx, "k", load); err != nil {
			t.Fatal(err)
		}
	}
	get()
	hit := func() bool {
		before := c.Stats()
		get()
		after := c.Stats()
		return after.Local+after.Hits > before.Local+before.Hits
	}
	redistest.Eventually(t, 10*time.Second, "it is a hit", func() bool {
		if entries == 0 {
			return hit()
		}
		before := c.Stats().Trips
		return hit() && c.Stats().Trips == before
	})
	return get, c
}

var tiers = map[string]int{"redis": 0, "local": 100}

// A hit allocates nothing more when misses have spans and counters are metrics.
func TestAHitAllocatesNothingMore(t *testing.T) {
	s := redistest.Real(t)
	p := newProcess(t)
	for tier, entries := range tiers {
		without, _ := hitter(t, s, tier, entries, stockade.Observer{})
		with, _ := hitter(t, s, tier+"+otel", entries, p.Observer())
		a, b := testing.AllocsPerRun(2000, without), testing.AllocsPerRun(2000, with)
		t.Logf("%s: %.1f without, %.1f with", tier, a, b)
		if b > a {
			t.Errorf("%s: a hit allocates %.1f objects, without a Telemetry %.1f", tier, b, a)
		}
	}
}

// BenchmarkHit measures a hit with and without a Telemetry, in blocks that take turns: with/without is the ratio of the
// medians.
func BenchmarkHit(b *testing.B) {
	s := redistest.Real(b)
	for tier, entries := range tiers {
		b.Run(tier, func(b *testing.B) {
			p := newProcess(b)
			without, _ := hitter(b, s, b.Name(), entries, stockade.Observer{})
			with, c := hitter(b, s, b.Name()+"+otel", entries, p.Observer())
			if err := p.Watch(c); err != nil {
				b.Fatal(err)
			}
			per := 200
			if entries > 0 {
				per = 50_000
			}
			block := func(get func()) float64 {
				begun := time.Now()
				for range per {
					get()
				}
				return float64(time.Since(begun)) / float64(per)
			}
			var a, w []float64
			for b.Loop() {
				a, w = append(a, block(without)), append(w, block(with))
				w, a = append(w, block(with)), append(a, block(without))
			}
			slices.Sort(a)
			slices.Sort(w)
			b.ReportMetric(w[len(w)/2], "ns/get")
			b.ReportMetric(w[len(w)/2]/a[len(a)/2], "with/without")
			b.ReportMetric(0, "ns/op")
		})
	}
}
