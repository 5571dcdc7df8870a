package stockade

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I6: without faults there is one load per key and expiry in the fleet, refreshes included.
func TestOneLoadPerExpiry(t *testing.T) {
	holds(t, oneLoadPerExpiry)
}

func oneLoadPerExpiry(t *testing.T, s redistest.Server) error {
	for name, change := range map[string]func(*Options){
		"fresh": func(*Options) {},
		"stale": func(o *Options) { o.StaleFor = time.Hour },
		"early": func(o *Options) { o.EarlyRefresh = 1 },
	} {
		if err := fleetLoads(t, s, name, change); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func fleetLoads(t *testing.T, s redistest.Server, key string, change func(*Options)) error {
	const ttl, takes, expiries = 200 * time.Millisecond, 40 * time.Millisecond, 4
	var mu sync.Mutex
	var begins, ends []time.Time
	load := func(context.Context) (string, error) {
		mu.Lock()
		begins = append(begins, time.Now())
		mu.Unlock()
		time.Sleep(takes)
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, time.Now())
		return "v", nil
	}
	var wg sync.WaitGroup
	end := time.Now().Add(expiries * (ttl + takes))
	for range 4 {
		c := open[string](t, s.Client(t), func(o *Options) { o.TTL = ttl; change(o) })
		for range 10 {
			wg.Go(func() {
				for time.Now().Before(end) {
					if v, err := c.Get(context.Background(), key, load); v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
					time.Sleep(7 * time.Millisecond)
				}
			})
		}
	}
	wg.Wait()
	time.Sleep(2 * takes) // a refresh may have begun last, which nothing here waits for
	mu.Lock()
	defer mu.Unlock()
	// The next load begins when the value of the last is due, which the first half of its lifetime never is. A busy machine
	// hears late when its lease was granted, and so much earlier the value is due: in a bubble there is no such delay.
	due := ttl / 2
	if _, exact := s.(*redistest.FakeServer); exact && key != "early" {
		due = ttl
	}
	due -= settle
	for i := 1; i < len(begins); i++ {
		if after := begins[i].Sub(ends[i-1]); after < due {
			return fmt.Errorf("load %d began %v after the one before had ended, of %d", i, after, len(begins))
		}
	}
	if len(begins) < expiries {
		return fmt.Errorf("%d loads in %d expiries", len(begins), expiries)
	}
	return nil
}

// I6: who missed a value that has been stored since does not load it again.
func TestAnAcquireFindsAStoredValue(t *testing.T) { holds(t, acquireOfAStoredValue) }

func acquireOfAStoredValue(t *testing.T, s redistest.Server) error {
	faults := redistest.NewFaults(t)
	rdb := s.Client(t)
	rdb.AddHook(faults)
	a, b := open[string](t, rdb), open[string](t, s.Client(t))
	reached, release := faults.Block(runs("acquire"))
	defer release()
	got := make(chan result)
	go func() { got <- getNow(a, "k", "again") }()
	<-reached
	if err := b.Set(t.Context(), "k", "v"); err != nil {
		return err
	}
	release()
	return expect("who missed it", <-got, "v")
}

// I7: after an invalidation a failure no longer keeps the fleet from loading.
func TestInvalidateEndsTheBackoff(t *testing.T) { holds(t, invalidatedFailure) }

func invalidatedFailure(t *testing.T, s redistest.Server) error {
	minute := func(o *Options) { o.FailureBackoff = time.Minute }
	a, b := open[string](t, s.Client(t), minute), open[string](t, s.Client(t), minute)
	p := get(a, "k")
	<-p.began
	p.finish(Entry[string]{}, errSource)
	if r := getNow(b, "k", "v"); r.err == nil {
		return errors.New("no failure")
	}
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	return expect("after the invalidation", getNow(a, "k", "v"), "v")
}

// I12: however many callers wait in a process, it sends four commands and one a poll. (Its first wait sends two more: it
// learns the server's time, and asks once when its subscription has come up.) A hit costs one.
func TestCommandsOfAWaitAndOfAHit(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		a, b := open[string](t, s.Client(t)), open[string](t, rdb)
		for _, wait := range []struct {
			key  string
			most int
		}{{"first", 6}, {"second", 4}} {
			before, polled := faults.Count(), b.Stats().Polls
			p := get(a, wait.key)
			<-p.began
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if err := expect("a waiter", getNow(b, wait.key, "?"), "v"); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(400 * time.Millisecond)
			p.finish(Entry[string]{Value: "v"}, nil)
			wg.Wait()
			sent, polls := faults.Count()-before, int(b.Stats().Polls-polled)
			if sent > wait.most+polls {
				return fmt.Errorf("the %s wait, with %d polls, sent %d commands", wait.key, polls, sent)
			}
		}
		before := faults.Count()
		for range 10 {
			if err := expect("a hit", getNow(b, "second", "?"), "v"); err != nil {
				return err
			}
		}
		if sent := faults.Count() - before; sent != 10 {
			return fmt.Errorf("10 hits sent %d commands", sent)
		}
		return nil
	})
}
