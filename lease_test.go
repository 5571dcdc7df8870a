package stockade

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A load is not ended while a renewal of its lease is on its way: sent first, it might come last.
func TestNoRenewalFollowsTheEndOfALoad(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var wg sync.WaitGroup
		for step, end := range map[string]result{
			"commit": {value: Entry[string]{Value: "v"}}, "release": {value: Entry[string]{NoStore: true}}, "fail": {err: errSource},
		} {
			rdb, sent, faults := s.Client(t), &recorder{}, redistest.NewFaults(t)
			rdb.AddHook(sent)
			rdb.AddHook(faults)
			c := open[string](t, rdb, unhurried)
			reached, release := faults.Block(runs("renew"))
			wg.Go(func() {
				p := get(c, step)
				<-p.began
				comes(t, "a renewal", reached)
				p.end <- end
				time.Sleep(settle)
				want(t, step+" before the renewal was answered", sent.count(step), 0)
				release()
				<-p.got
				want(t, step, sent.count(step), 1)
			})
		}
		wg.Wait()
	})
}

// unhurried is for a busy machine too: nobody loads without a lease because an answer took a while.
func unhurried(o *Options) { o.RedisTimeout, o.LeaseTTL = time.Second, 4*time.Second }

// comes waits for what a test would otherwise wait for without end.
func comes(t testing.TB, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(20 * time.Second):
		t.Errorf("%s did not come", what)
	}
}

// I6: a load that takes three times its lease is the only one, however many callers and instances wait for it.
func TestALoadThatOutlastsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const instances, callers = 10, 200
		s := redistest.Fake(t)
		o := &origin[string]{load: func(context.Context) (string, error) { time.Sleep(3 * defaultLeaseTTL); return "v", nil }}
		begun := time.Now()
		var wg sync.WaitGroup
		for range instances {
			c := open[string](t, s.Client(t))
			for range callers {
				wg.Go(func() {
					if v, err := c.Get(t.Context(), "k", o.Load); v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
				})
			}
		}
		wg.Wait()
		wantLoads(t, o, 1)
		if took := time.Since(begun); took > 3*defaultLeaseTTL+lastPoll {
			t.Errorf("took %v", took)
		}
	})
}

// I3: a lease that another has is asked about once and left alone. The load goes on, and its value is not stored.
func TestAStolenLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const lease = 2 * time.Second
		rdb, sent, admin := s.Client(t), &recorder{}, s.Client(t)
		rdb.AddHook(sent)
		c := open[string](t, rdb, func(o *Options) { o.RedisTimeout, o.LeaseTTL = lease/4, lease })
		p := get(c, "k")
		<-p.began
		name, thief := c.view.names("k").Lease, strings.Repeat("t", 32)
		if err := admin.Set(t.Context(), name, thief, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease * 3 / 4) // two renewals
		want(t, "renewals", sent.count("renew"), 1)
		if err := expect("the callers", p.finish(Entry[string]{Value: "v"}, nil), "v"); err != nil {
			t.Error(err)
		}
		want(t, "rejected", c.Stats().Rejected, 1)
		want(t, "the thief's lease", admin.Get(t.Context(), name).Val(), thief)
		if left := admin.PTTL(t.Context(), name).Val(); left < 59*time.Minute {
			t.Errorf("the thief's lease lasts %v", left)
		}
	})
}

// A loader that hangs keeps its lease until LoadTimeout and no longer: who waits elsewhere is told, and takes over.
func TestAStuckLoader(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const lease, timeout = 2 * time.Second, 1500 * time.Millisecond
		rdb, sent := s.Client(t), &recorder{}
		rdb.AddHook(sent)
		short := func(o *Options) { o.RedisTimeout, o.LeaseTTL, o.LoadTimeout = lease/4, lease, timeout }
		holder, waiter := open[string](t, rdb, short), open[string](t, s.Client(t), short)
		began, finish := make(chan struct{}), make(chan struct{})
		defer close(finish) // before the caches are closed, which wait for their loaders
		stuck := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
		defer cancel()
		go func() {
			_, err := holder.Get(ctx, "k", func(context.Context) (string, error) { close(began); <-finish; return "late", nil })
			stuck <- err
		}()
		<-began
		time.Sleep(settle) // the waiter's own patience ends later
		var failed *LoadError
		if _, err := waiter.Get(t.Context(), "k", returns("own").Load); !errors.As(err, &failed) || !failed.Remote {
			t.Errorf("who waited elsewhere: got %v", err)
		}
		if err := <-stuck; !errors.Is(err, ErrLoadTimeout) {
			t.Errorf("who waited here: got %v", err)
		}
		renewals := sent.count("renew")
		time.Sleep(defaultFailureBackoff + settle)
		if err := expect("after the backoff", getNow(waiter, "k", "own"), "own"); err != nil {
			t.Error(err)
		}
		time.Sleep(lease / 2)
		want(t, "renewals after LoadTimeout", sent.count("renew")-renewals, 0)
	})
}

// I13: a caller that leaves gets away at once, wherever its call is, and the key is free as soon as what it began has ended.
func TestACallerThatLeavesAtAnyStep(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const soon = time.Second // a lease that was left behind lasts for four
		noBackoff := func(o *Options) { unhurried(o); o.FailureBackoff = -1 }
		for step, end := range map[string]result{
			"read": {}, "acquire": {}, "commit": {}, "release": {value: Entry[string]{NoStore: true}}, "fail": {err: errSource},
			"drop": {err: ErrNotFound}, "its load": {}, "another's load": {},
		} {
			rdb, faults := s.Client(t), redistest.NewFaults(t)
			rdb.AddHook(faults)
			a := open[string](t, rdb, noBackoff, func(o *Options) { o.AbsentTTL = -1 })
			b := open[string](t, s.Client(t), noBackoff)
			if err := expect("warm", getNow(a, "warm", "v"), "v"); err != nil { // the clock is known, and the scripts
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(t.Context())
			var reached <-chan struct{} // nil: a waits
			release := func() {}
			load := func(context.Context, *Entry[string]) (Entry[string], error) { return end.value, end.err }
			switch step {
			case "read":
				reached, release = faults.Block(redistest.Named("get"))
			case "its load": // which holds on to its caller's context
				began := make(chan struct{})
				reached = began
				load = func(context.Context, *Entry[string]) (Entry[string], error) {
					close(began)
					<-ctx.Done()
					return Entry[string]{}, ctx.Err()
				}
			case "another's load":
				p := get(b, step)
				<-p.began
				release = func() { p.finish(Entry[string]{Value: "v"}, nil) }
			default:
				reached, release = faults.Block(runs(step))
			}
			left := make(chan error, 1)
			go func() { _, err := a.Fetch(ctx, step, load); left <- err }()
			if reached != nil {
				comes(t, step, reached)
			} else {
				redistest.Eventually(t, soon, "a waits", func() bool { return a.Stats().Waits > 0 })
			}
			leaving := time.Now()
			leave()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: who left got %v", step, err)
			}
			if took := time.Since(leaving); took > soon {
				t.Errorf("%s: leaving took %v", step, took)
			}
			release()
			ended := time.Now()
			// Who comes before the failure is recorded shares it.
			if r := getNow(b, step, "v"); r.err != nil && (step != "fail" || asLoadError(r.err) == nil) {
				t.Errorf("%s: the next caller got %v", step, r.err)
			}
			redistest.Eventually(t, soon, step+": no lease, and nobody waits", func() bool {
				return leases(t, s) == 0 && a.Stats().Flights == 0
			})
			if took := time.Since(ended); took > soon {
				t.Errorf("%s: the key was free after %v", step, took)
			}
		}
	})
}
