package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockade-cache/stockade/examples/internal/display"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

// scenario is what all callers of all instances do at once, with one product.
type scenario struct {
	name, what string
	ttl        time.Duration
	warm       bool          // the product is in Redis when the callers begin
	every      time.Duration // how often each caller reads; zero: once
	lasts      time.Duration // how long they go on reading
}

func coldKey() scenario {
	return scenario{name: "a cold key", what: "every caller asks at the same moment for a product that is not in Redis", ttl: time.Minute}
}

func expiringKey(load time.Duration) scenario {
	const (
		every    = 100 * time.Millisecond
		expiries = 4
	)
	ttl := max(time.Second, 5*load)
	return scenario{
		name: "an expiring key",
		what: fmt.Sprintf("every caller reads a hot product each %v, for %d times its TTL of %v", every, expiries, ttl),
		ttl:  ttl, warm: true, every: every, lasts: expiries * ttl,
	}
}

// result is what was measured.
type result struct {
	scenario, way string
	reads         int
	queries       int64 // of the database
	p50, p99      time.Duration
	commands      int64 // sent to Redis
}

// measure runs a scenario on instances of its own, under a prefix that nobody has used.
func measure(ctx context.Context, s size, sc scenario, w way, repository *store.Products, progress *display.Progress) (r result, err error) {
	const id = products / 2
	prefix := "quickstart:" + rand.Text()
	var instances []*instance
	defer func() {
		for _, in := range instances {
			if closed := in.close(); err == nil {
				err = closed
			}
		}
	}()
	for range s.instances {
		in, err := openInstance(ctx, s.redis, w, prefix, sc.ttl, repository.Find)
		if err != nil {
			return result{}, err
		}
		instances = append(instances, in)
	}
	if sc.warm {
		if _, err := instances[0].get(ctx, id); err != nil {
			return result{}, err
		}
		instances[0].sent.n.Store(0)
	}

	var (
		queries = repository.Queries()
		reads   atomic.Int64
		took    = make([][]time.Duration, 0, s.instances*s.callers)
		begin   = make(chan struct{})
		callers sync.WaitGroup
	)
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, in := range instances {
		for range s.callers {
			took = append(took, nil)
			own := &took[len(took)-1] // its caller's alone until all callers are done; took has the room from the start
			offset := sc.every * time.Duration(len(took)) / time.Duration(cap(took))
			callers.Go(func() {
				<-begin
				err := read(running, sc, offset, func() error {
					began := time.Now()
					got, err := in.get(running, id)
					*own = append(*own, time.Since(began))
					reads.Add(1)
					if err == nil && got.ID != id {
						err = fmt.Errorf("got product %d, want %d", got.ID, id)
					}
					return err
				})
				if err != nil {
					fail(err)
				}
			})
		}
	}
	done := progress.Show(func() string {
		return fmt.Sprintf("  %-16s  %6d answers  %5d database queries", w.name, reads.Load(), repository.Queries()-queries)
	})
	close(begin)
	callers.Wait()
	done()
	if err := context.Cause(running); err != nil {
		return result{}, err
	}

	all := slices.Concat(took...)
	slices.Sort(all)
	r = result{
		scenario: sc.name, way: w.name, reads: len(all), queries: repository.Queries() - queries,
		p50: quantile(all, 0.50), p99: quantile(all, 0.99),
	}
	for _, in := range instances {
		r.commands += in.sent.n.Load()
	}
	return r, nil
}

// read calls get as often as the scenario says. Callers keep their rhythm: one that was held up leaves out what it missed.
func read(ctx context.Context, sc scenario, offset time.Duration, get func() error) error {
	if sc.every == 0 {
		return get()
	}
	end := time.Now().Add(sc.lasts)
	for next := time.Now().Add(offset); next.Before(end); {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := get(); err != nil {
			return err
		}
		for next = next.Add(sc.every); next.Before(time.Now()); {
			next = next.Add(sc.every)
		}
	}
	return nil
}

// quantile returns the smallest of what is sorted, and not empty, that at least this part is not above.
func quantile(sorted []time.Duration, part float64) time.Duration {
	return sorted[max(int(math.Ceil(part*float64(len(sorted)))), 1)-1]
}
