package stockade

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I11: nothing that is served is older than TTL + StaleFor + LoadTimeout, when nobody invalidates; without StaleFor
// than TTL + its load.
func TestStalenessThroughFaults(t *testing.T) {
	for _, staleFor := range []time.Duration{-1, 60 * time.Millisecond} {
		holds(t, func(t *testing.T, s redistest.Server) error { return staleness(t, s, staleFor) })
	}
}

func staleness(t *testing.T, s redistest.Server, staleFor time.Duration) error {
	const ttl, longest, timeout = 50 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond
	// The source is the time itself: how old a value is can be read off it.
	start := time.Now()
	h := &history{}
	p := plan{seed: 1, instances: 3, impatient: true, faults: true, freeze: 30 * time.Millisecond, opts: Options{
		Prefix: "test", TTL: ttl, StaleFor: staleFor, EarlyRefresh: 1, LoadTimeout: timeout, RedisTimeout: 10 * time.Millisecond, LeaseTTL: 40 * time.Millisecond,
	}}
	c := newChaos(t, s, p)
	bound := ttl + longest
	if staleFor > 0 {
		bound = ttl + staleFor + timeout
	}
	if _, real := s.(*redistest.RealServer); real {
		bound += settle // the test's own goroutines wait for a processor
	}
	var wg sync.WaitGroup
	for i := range 6 {
		cache := c.caches[i%len(c.caches)]
		wg.Go(func() {
			for n := range 100 {
				asked := time.Since(start)
				e, err := cache.Fetch(context.Background(), "k", func(context.Context, *Entry[int64]) (Entry[int64], error) {
					e := Entry[int64]{Value: int64(time.Since(start))}
					time.Sleep(longest * time.Duration((i+n)%7) / 6)
					return e, nil
				})
				limit := bound
				if e.Source == Local {
					limit = memoryTTL + longest
				}
				if age := asked - time.Duration(e.Value); err == nil && age > limit {
					h.wrong("a value of %v was %v old, source %v", time.Duration(e.Value), age, e.Source)
				}
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	c.run(s.Client(t))
	wg.Wait()
	c.stop()
	c.close()
	return h.err
}
