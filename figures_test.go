package stockade

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The benchmarks of this file measure the fleet: real processes, real failures. docs/figures.md has their results and
// commands. b.N is the number of rounds.

func median[T ~int | ~int64 | ~float64](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkHerd lets 4 processes with 250 callers each ask for one cold key.
func BenchmarkHerd(b *testing.B) {
	for _, load := range []time.Duration{100 * time.Millisecond, 20 * time.Millisecond} {
		b.Run(fmt.Sprint("load=", load), func(b *testing.B) {
			s := redistest.Real(b)
			var fleet []*member
			for range 4 {
				fleet = append(fleet, spawnMember(b, s.Addr()))
			}
			var loads, commands []int
			var p99 []float64
			for round := -3; round < b.N; round++ { // the first three set up connections, scripts and subscriptions
				o := order{Key: strconv.Itoa(round), Callers: 250, Load: load, Value: "v"}
				for _, m := range fleet {
					m.order(b, o)
				}
				l, c := 0, 0
				var took []time.Duration
				for _, m := range fleet {
					r := m.done(b, o.Key)
					l, c, took = l+r.Loads, c+r.Sent, append(took, r.Took...)
				}
				if round < 0 {
					continue
				}
				slices.Sort(took)
				loads, commands = append(loads, l), append(commands, c)
				p99 = append(p99, float64(took[len(took)*99/100])/float64(load))
			}
			b.ReportMetric(float64(slices.Max(loads)), "loads-max")
			b.ReportMetric(float64(median(commands)), "commands")
			b.ReportMetric(median(p99), "p99/load")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkKilledHolder measures how long a waiter takes from the death of the holder to the value, without its own load.
func BenchmarkKilledHolder(b *testing.B) {
	s := redistest.Real(b)
	const load = 100 * time.Millisecond
	var took []float64
	for round := range b.N {
		key := strconv.Itoa(round)
		holder, waiter := spawnMember(b, s.Addr()), spawnMember(b, s.Addr())
		holder.order(b, order{Key: key, Callers: 1, Load: time.Minute})
		holder.began(b, key)
		waiter.order(b, order{Key: key, Callers: 10, Load: load, Value: "v"})
		time.Sleep(time.Second)
		killed := time.Now()
		holder.signal(b, syscall.SIGKILL)
		waiter.done(b, key)
		took = append(took, (time.Since(killed) - load).Seconds())
	}
	b.ReportMetric(slices.Max(took), "s-max")
	b.ReportMetric(median(took), "s-median")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFrozenDeadline measures when a call with 200 ms to live returns from a frozen Redis.
func BenchmarkFrozenDeadline(b *testing.B) {
	var took []float64
	for range b.N {
		s := redistest.NewReal(b)
		c := open[string](b, s.Client(b, func(o *redis.Options) { *o = redis.Options{Addr: s.Addr()} }))
		if err := c.Set(b.Context(), "k", "v"); err != nil {
			b.Fatal(err)
		}
		s.Freeze(b)
		ctx, cancel := context.WithTimeout(b.Context(), 200*time.Millisecond)
		asked := time.Now()
		_, _ = c.Get(ctx, "k", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		took = append(took, float64(time.Since(asked))/1e6)
		cancel()
		s.Thaw(b)
	}
	b.ReportMetric(slices.Max(took), "ms-max")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkOutage reads 50 warm keys 5,000 times a second, whether earlier reads have returned or not, while Redis is
// frozen for 2 s, or killed for 3 s.
func BenchmarkOutage(b *testing.B) {
	b.Run("frozen", func(b *testing.B) {
		benchmarkOutage(b, 2*time.Second, func(s *redistest.RealServer) { s.Freeze(b) }, func(s *redistest.RealServer) { s.Thaw(b) })
	})
	b.Run("killed", func(b *testing.B) {
		benchmarkOutage(b, 3*time.Second, func(s *redistest.RealServer) { s.Kill() }, func(s *redistest.RealServer) { s.Restart(b) })
	})
}

func benchmarkOutage(b *testing.B, lasts time.Duration, begin, end func(*redistest.RealServer)) {
	const keys, rate, load = 50, 5000, 20 * time.Millisecond
	var within, p50, p99, errors, loads, hits []float64
	for range b.N {
		s := redistest.NewReal(b)
		c := open[string](b, s.Client(b, func(o *redis.Options) { *o = redis.Options{Addr: s.Addr()} }), func(o *Options) { o.TTL = time.Hour })
		o := &origin[string]{load: func(context.Context) (string, error) { time.Sleep(load); return "v", nil }}
		for k := range keys {
			if _, err := c.Get(b.Context(), strconv.Itoa(k), o.Load); err != nil {
				b.Fatal(err)
			}
		}
		o.loads.Store(0)
		type read struct {
			at, took time.Duration
			err      error
		}
		var mu sync.Mutex // guards reads
		var reads []read
		var wg sync.WaitGroup
		begun := time.Now()
		outage := time.AfterFunc(time.Second, func() { begin(s) })
		back := time.AfterFunc(time.Second+lasts, func() { end(s) })
		for i := 0; ; i++ {
			at := time.Duration(i) * time.Second / rate
			if at > lasts+3*time.Second {
				break
			}
			time.Sleep(time.Until(begun.Add(at)))
			wg.Go(func() {
				_, err := c.Get(context.Background(), strconv.Itoa(i%keys), o.Load)
				r := read{at, time.Since(begun) - at, err} // from when it was due
				mu.Lock()
				reads = append(reads, r)
				mu.Unlock()
			})
		}
		wg.Wait()
		outage.Stop()
		back.Stop()
		var during, open []float64
		failed, good := 0, 0
		for _, r := range reads {
			if r.err != nil {
				failed++
			}
			if r.at < time.Second || r.at > time.Second+lasts {
				continue
			}
			during = append(during, float64(r.took)/1e6)
			if r.took <= defaultRedisTimeout+2*load {
				good++
			}
			if r.at > time.Second+defaultRedisTimeout+50*time.Millisecond {
				open = append(open, float64(r.took)/1e6)
			}
		}
		slices.Sort(during)
		within = append(within, 100*float64(good)/float64(len(during)))
		p50 = append(p50, median(open))
		p99 = append(p99, during[len(during)*99/100])
		errors = append(errors, float64(failed))
		loads = append(loads, float64(o.loads.Load()))
		before := c.Stats().Hits
		if _, err := c.Get(b.Context(), "0", o.Load); err != nil {
			b.Error(err)
		}
		_, _ = c.Get(b.Context(), "0", o.Load)
		hits = append(hits, float64(c.Stats().Hits-before))
	}
	b.ReportMetric(median(within), "%-in-time")
	b.ReportMetric(median(p50), "ms-p50-open")
	b.ReportMetric(median(p99), "ms-p99")
	b.ReportMetric(slices.Max(errors), "errors")
	b.ReportMetric(median(loads), "loads")
	b.ReportMetric(median(hits), "hits-of-2-after")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkInvalidation counts stale answers right after an invalidation has returned, from the instance that
// invalidated and from another. b.N is the number of tries.
func BenchmarkInvalidation(b *testing.B) {
	s := redistest.Real(b)
	one, other := open[int64](b, s.Client(b)), open[int64](b, s.Client(b))
	now := int64(0)
	load := func(context.Context) (int64, error) { return now, nil }
	staleOne, staleOther := 0, 0
	for range b.N {
		for _, c := range []*Cache[int64]{one, other} {
			if v, err := c.Get(b.Context(), "k", load); err != nil || v != now {
				b.Fatal(v, err)
			}
		}
		now++
		if err := one.Invalidate(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
		for c, stale := range map[*Cache[int64]]*int{one: &staleOne, other: &staleOther} {
			v, err := c.Get(b.Context(), "k", load)
			if err != nil {
				b.Fatal(err)
			}
			if v != now {
				*stale++
			}
		}
	}
	b.ReportMetric(float64(staleOne), "stale")
	b.ReportMetric(float64(staleOther), "stale-elsewhere")
	b.ReportMetric(0, "ns/op")
}
