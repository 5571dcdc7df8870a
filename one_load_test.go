package stockade

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	var late []time.Duration // how late a load may have heard of its grant, at most: the value is due so much earlier
	var wg sync.WaitGroup
	end := time.Now().Add(expiries * (ttl + takes))
	for range 4 {
		rdb := s.Client(t)
		var asked atomic.Int64 // when this process asked for the lease last
		rdb.AddHook(around{before: func(cmds []redis.Cmder, _ error) {
			if isStep(cmds[0].Args(), "acquire") {
				asked.Store(time.Now().UnixNano())
			}
		}})
		load := func(context.Context) (string, error) {
			begun := time.Now()
			mu.Lock()
			begins, late = append(begins, begun), append(late, time.Duration(begun.UnixNano()-asked.Load()))
			mu.Unlock()
			time.Sleep(takes)
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, time.Now())
			return "v", nil
		}
		c := open[string](t, rdb, func(o *Options) {
			o.TTL = ttl
			o.RedisTimeout, o.LeaseTTL = 10*time.Second, 40*time.Second // that the machine stalls for a while is no fault
			change(o)
		})
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
	// The next load begins when the value of the last is due, which the first half of its lifetime never is. What else a busy
	// machine delays only lengthens the time from an end to the next beginning.
	due := ttl - settle
	if key == "early" {
		due = ttl/2 - settle
	}
	for i := 1; i < len(begins); i++ {
		if after := begins[i].Sub(ends[i-1]); after < due-late[i-1] {
			return fmt.Errorf("load %d began %v after the one before had ended, of %d; that heard of its grant within %v", i, after, len(begins), late[i-1])
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
