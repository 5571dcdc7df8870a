package stockade

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I4: a step whose reply is lost is repeated, and nothing shows it: within the client, and by the cache.
func TestLostReplies(t *testing.T) {
	for _, step := range []string{"acquire", "renew", "commit", "touch", "drop", "fail", "release", "invalidate", "expire"} {
		t.Run(step, func(t *testing.T) { holds(t, lostReplyOf(step)) })
	}
}

func lostReplyOf(step string) scenario {
	return func(t *testing.T, s redistest.Server) error {
		// The first time nothing is lost: the server learns the scripts.
		for _, where := range []string{"nobody", "connection", "hook"} {
			if err := loseReplyOf(t, s, step, where); err != nil {
				return fmt.Errorf("lost by the %s: %w", where, err)
			}
		}
		return nil
	}
}

func loseReplyOf(t *testing.T, s redistest.Server, step, where string) error {
	const lease, quick = 1200 * time.Millisecond, 450 * time.Millisecond
	proxy, faults := redistest.NewProxy(t, s), redistest.NewFaults(t)
	rdb := proxy.Client(t)
	rdb.AddHook(faults)
	var last atomic.Int64
	a := open[string](t, rdb, func(o *Options) {
		o.RedisTimeout, o.LeaseTTL, o.StaleFor, o.AbsentTTL = lease/4, lease, time.Hour, -1
		o.Observer.Load = func(e LoadEvent) { last.Store(int64(e.Outcome)) }
	})
	b := open[string](t, s.Client(t))
	key := step + where
	if step == "touch" || step == "expire" {
		if err := b.With(Policy{TTL: 10 * time.Millisecond, StaleFor: -1, KeepFor: time.Hour}).Set(t.Context(), key, "kept"); err != nil {
			return err
		}
		time.Sleep(settle)
	}
	switch where {
	case "hook":
		faults.LoseReply(1, runs(step))
	case "connection":
		proxy.DropReplies(1, runs(step))
	}
	end, want, outcome, took := result{value: Entry[string]{Value: "v"}}, "v", Stored, time.Duration(0)
	switch step {
	case "renew":
		took = lease * 3 / 2
	case "touch":
		end, want = result{err: ErrNotModified}, "kept"
	case "drop":
		end, want = result{err: ErrNotFound}, ErrMiss.Error()
	case "fail":
		end, want, outcome = result{err: errSource}, ErrMiss.Error(), NotStored
	case "release":
		end, want, outcome = result{value: Entry[string]{NoStore: true}}, ErrMiss.Error(), NotStored
	}
	begun := time.Now()
	p := get(a, key)
	select {
	case <-p.began:
	case r := <-p.got:
		return fmt.Errorf("no load: %v", r)
	}
	if waited := time.Since(begun); waited > quick {
		return fmt.Errorf("the load began after %v", waited)
	}
	time.Sleep(took)
	r := p.finish(end.value, end.err)
	if step == "drop" && where != "nobody" {
		outcome = Rejected // a drop leaves nothing that a repeated one could recognise
	}
	if got := Outcome(last.Load()); got != outcome {
		return fmt.Errorf("the load was %v, want %v: %v", got, outcome, r)
	}
	switch step {
	case "invalidate":
		if err := a.Invalidate(t.Context(), key); err != nil {
			return err
		}
		want = ErrMiss.Error()
	case "expire":
		if err := a.Expire(t.Context(), key); err != nil {
			return err
		}
		if e, err := b.Lookup(t.Context(), key); err != nil || e.Source != Stale {
			return fmt.Errorf("after Expire: %v, %w", e, err)
		}
	}
	if v := storedIn(b, key); v != want {
		return fmt.Errorf("stored: %q, want %q", v, want)
	}
	time.Sleep(settle)
	if n := leases(t, s); n != 0 {
		return fmt.Errorf("%d leases are left", n)
	}
	return nil
}
