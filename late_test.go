package stockade

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I1: a Set that was given up does not happen later.
func TestNoLateSet(t *testing.T) { holds(t, lateSet) }

// I1: nor does it when the server's clock was read off a reply whose request had been held up.
func TestNoLateSetAfterASlowRequest(t *testing.T) { holds(t, lateSetAfterASlowRequest) }

func lateSetAfterASlowRequest(t *testing.T, s redistest.Server) error {
	proxy := redistest.NewProxy(t, s)
	a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
	if err := b.Set(t.Context(), "another", "v"); err != nil { // so that the server knows the script
		return err
	}
	proxy.Freeze()
	thawed := time.AfterFunc(200*time.Millisecond, proxy.Thaw)
	defer thawed.Stop()
	if v := storedIn(a, "other"); v != ErrMiss.Error() { // the first sample: the clock seems 100 ms ahead
		return errors.New(v)
	}
	proxy.Freeze()
	defer proxy.Thaw()
	if err := a.Set(t.Context(), "k", "old"); !errors.Is(err, ErrRedis) {
		return fmt.Errorf("a Set without an answer: got %v", err)
	}
	proxy.Thaw()
	time.Sleep(settle)
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("a Set happened after it had failed: %q", v)
	}
	return nil
}

func lateSet(t *testing.T, s redistest.Server) error {
	proxy := redistest.NewProxy(t, s)
	a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
	if err := a.Set(t.Context(), "other", "v"); err != nil { // so that the clock is known
		return err
	}
	proxy.Freeze()
	defer proxy.Thaw()
	if err := a.Set(t.Context(), "k", "old"); !errors.Is(err, ErrRedis) {
		return fmt.Errorf("a Set without an answer: got %v", err)
	}
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	proxy.Thaw()
	time.Sleep(settle)
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("a Set happened after it had failed: %q", v)
	}
	return nil
}

// I3: an acquire that arrives when nobody waits for it any more leaves no lease behind.
func TestNoLateAcquire(t *testing.T) { holds(t, lateAcquire) }

func lateAcquire(t *testing.T, s redistest.Server) error {
	rdb, seen := s.Client(t), &recorder{}
	rdb.AddHook(seen)
	c := open[string](t, rdb, func(o *Options) { o.RedisTimeout = 10 * settle })
	if err := expect("first", getNow(c, "k", "v"), "v"); err != nil {
		return err
	}
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	time.Sleep(11 * settle)
	if err := s.Client(t).Do(t.Context(), seen.last("acquire")...).Err(); err != nil { // a copy that was under way
		return err
	}
	if n := leases(t, s); n != 0 {
		return errors.New("a lease that nobody holds")
	}
	return nil
}

// A Set whose outcome is unknown is over when it returns: the write does not happen later.
func TestASetOfUnknownOutcomeDoesNotHappenLater(t *testing.T) {
	for _, deadline := range []time.Duration{0, 100 * time.Millisecond} {
		for _, known := range []bool{true, false} { // the server's clock
			synctest.Test(t, func(t *testing.T) {
				s := redistest.Fake(t)
				p := redistest.NewProxy(t, s)
				c, other := open[string](t, p.Client(t)), open[string](t, s.Client(t))
				warm := other // so that the server knows the step
				if known {
					warm = c
				}
				if err := warm.Set(t.Context(), "other", "v"); err != nil {
					t.Fatal(err)
				}
				p.Freeze()
				ctx, timeout := t.Context(), testTimeout
				if deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, deadline)
					defer cancel()
					timeout = deadline
				}
				asked := time.Now()
				if err := c.Set(ctx, "k", "v"); !errors.Is(err, ErrRedis) {
					t.Errorf("got %v", err)
				}
				want(t, "took", time.Since(asked), timeout)
				time.Sleep(time.Millisecond)
				p.Thaw()
				time.Sleep(time.Second)
				if e, err := other.Lookup(t.Context(), "k"); !errors.Is(err, ErrMiss) {
					t.Errorf("afterwards: got %q, %v", e.Value, err)
				}
			})
		}
	}
}

// The same when the clock was learnt from a request that took long to arrive, so that it may be wrong by half of that.
func TestASetDoesNotTrustASlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		p := redistest.NewProxy(t, s)
		rdb := p.Client(t)
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		c, other := open[string](t, rdb), open[string](t, s.Client(t))
		faults.Delay(1, redistest.Any, 200*time.Millisecond) // before it leaves
		if _, err := c.Lookup(t.Context(), "other"); !errors.Is(err, ErrMiss) {
			t.Fatal(err)
		}
		if err := other.Set(t.Context(), "other", "v"); err != nil { // so that the server knows the step
			t.Fatal(err)
		}
		p.Freeze()
		if err := c.Set(t.Context(), "k", "v"); !errors.Is(err, ErrRedis) {
			t.Errorf("got %v", err)
		}
		time.Sleep(20 * time.Millisecond)
		p.Thaw()
		time.Sleep(time.Second)
		if e, err := other.Lookup(t.Context(), "k"); !errors.Is(err, ErrMiss) {
			t.Errorf("afterwards: got %q, %v", e.Value, err)
		}
	})
}

// A request for a lease that the server executes when nobody waits for its answer any more leaves no lease.
func TestALateAcquireLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		p := redistest.NewProxy(t, s)
		// The client hangs up, so that it does not learn of the answer.
		rdb := p.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 100*time.Millisecond, -1 })
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		c := open[string](t, rdb, func(o *Options) { o.WhenRedisFails = ReturnError })
		if _, err := c.Get(t.Context(), "other", returns("v").Load); err != nil { // so that the server knows the step
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		reached, release := faults.Block(redistest.Named("evalsha"))
		failed := make(chan error)
		go func() { _, err := c.Get(t.Context(), "k", returns("v").Load); failed <- err }()
		<-reached
		p.Freeze()
		release()
		if err := <-failed; !errors.Is(err, ErrRedis) {
			t.Errorf("got %v", err)
		}
		time.Sleep(testTimeout)
		p.Thaw()
		time.Sleep(100 * time.Millisecond)
		want(t, "leases", leases(t, s), 0)
	})
}
