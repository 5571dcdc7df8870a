package stockade

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Every key of overlapping batches is loaded once in the fleet.
func TestGetManyInTheFleet(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const instances, each, step = 20, 200, 20
		all := numbered(each + instances*step)
		o := table{before: func(context.Context, []string) error { time.Sleep(testLoad); return nil }}
		var wg sync.WaitGroup
		for i := range instances {
			c := open[string](t, s.Client(t), unhurried)
			wg.Go(func() {
				keys := all[i*step : i*step+each]
				got, err := c.GetMany(t.Context(), keys, o.load)
				wantValues(t, got, err, keys...)
			})
		}
		wg.Wait()
		loads := o.perKey()
		for key, n := range loads {
			want(t, "loads of "+key, n, 1)
		}
		want(t, "keys loaded", len(loads), each+(instances-1)*step)
		if len(o.asked) > instances {
			t.Errorf("%d loads by %d instances", len(o.asked), instances)
		}
	})
}

// A key that another is loading is read when the message comes that it is there, and not asked for before.
func TestABatchWaitsForAKey(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb := s.Client(t)
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		holder, c := open[string](t, s.Client(t)), open[string](t, rdb)
		c.view.bus.Start()
		redistest.Eventually(t, time.Second, "the subscription is up", c.view.bus.Live)
		p := get(holder, "a")
		<-p.began
		var o table
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
			wantValues(t, got, err, "a", "b")
		}()
		synctest.Wait()
		steps, reads := faults.Count("evalsha", "eval"), faults.Count("get", "mget")
		p.finish(Entry[string]{Value: "v of a"}, nil)
		<-done
		want(t, "steps since", faults.Count("evalsha", "eval")-steps, 0)
		want(t, "reads since", faults.Count("get", "mget")-reads, 1)
		want(t, "loads", o.loads(), "[[b]]")
		want(t, "waits", c.Stats().Waits, 1)
		want(t, "wakes", c.Stats().Wakes, 1)
	})
}

// What waits is polled for in one pipeline, and every key is told of.
func TestABatchPolls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var mu sync.Mutex
		var told []WaitEvent
		rdb := s.Client(t)
		holder := open[string](t, s.Client(t))
		c := open[string](t, rdb, func(o *Options) {
			o.Observer.Wait = func(e WaitEvent) { mu.Lock(); defer mu.Unlock(); told = append(told, e) }
		})
		c.view.bus.Start()
		redistest.Eventually(t, time.Second, "the subscription is up", c.view.bus.Live)
		keys := numbered(50)
		finish := make(chan struct{})
		slow := table{before: func(context.Context, []string) error { <-finish; return nil }}
		go func() { _, _ = holder.GetMany(t.Context(), keys, slow.load) }()
		synctest.Wait()
		var o table
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := c.GetMany(t.Context(), keys, o.load)
			wantValues(t, got, err, keys...)
		}()
		synctest.Wait()
		trips := countRoundTrips(rdb)
		var longest atomic.Int64 // pipeline
		rdb.AddHook(around{before: func(cmds []redis.Cmder, _ error) { longest.Store(max(longest.Load(), int64(len(cmds)))) }})
		time.Sleep(time.Second)
		polls := trips.Load()
		if polls < 4 || polls > 16 {
			t.Errorf("%d round trips in a second", polls)
		}
		want(t, "keys of a poll", longest.Load(), int64(len(keys)))
		close(finish)
		<-done
		if n := trips.Load() - polls; n > int64(len(keys))/2 {
			t.Errorf("%d round trips for the values", n)
		}
		mu.Lock()
		defer mu.Unlock()
		want(t, "events", len(told), len(keys))
		want(t, "wakes", told[0].Wakes, 1)
		want(t, "stamp", len(told[0].Stamp), 16)
		want(t, "loads", o.loads(), "[]")
	})
}

// Keys whose holder has crashed are loaded when its leases have expired, and do not keep the others.
func TestGetManyAfterACrash(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		crash(t, s, c, "a", time.Second)
		var o table
		begun := time.Now()
		got, err := c.GetMany(t.Context(), []string{"a", "b", "c"}, o.load)
		wantValues(t, got, err, "a", "b", "c")
		want(t, "loads", o.loads(), "[[b c] [a]]")
		if took := time.Since(begun); took < time.Second || took > 1300*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}
