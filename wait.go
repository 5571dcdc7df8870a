package stockade

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/stockade-cache/stockade/internal/bus"
	"github.com/stockade-cache/stockade/internal/script"
)

// waiting is the wait of a flight for another process's lease.
type waiting struct {
	flight *flight
	waiter *bus.Waiter
	waited bool
	begun  time.Time
	stamp  string // of the lease that is waited for
	polls  int
	wakes  int
	err    error // that ended it
	span   traced
	told   bool
}

// pause waits until the lease may be free, or the value there.
func (w *waiting) pause(busy script.Acquired) error {
	f := w.flight
	if !w.waited {
		w.waited, w.begun = true, time.Now()
		f.stats.waits.Add(1)
		w.span = f.opts.Observer.begin(f.caller, SpanBegin{Span: SpanWait, Keys: []string{f.key}})
		f.bus.Start()
	}
	w.stamp = busy.Stamp
	first, spread := firstPoll, 0.5
	if f.bus.Live() {
		first, spread = firstAwokenPoll, 0.25
	}
	budget := f.opts.LoadTimeout - time.Since(w.begun)
	if budget <= 0 {
		return ErrLoadTimeout
	}
	// A lease that expires sends no wake; a millisecond later it is gone for certain.
	timer := time.NewTimer(min(busy.PTTL+time.Millisecond, pollDelay(first, w.polls, spread, rand.Float64()), budget))
	defer timer.Stop()
	select {
	case <-w.waiter.C:
		w.wakes++
		f.stats.wakes.Add(1)
	case <-timer.C:
		w.polls++
		f.stats.polls.Add(1)
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
	return nil
}

// tell reports the wait, if there was one, once.
func (w *waiting) tell() {
	if !w.waited || w.told {
		return
	}
	w.told = true
	w.span.end(SpanEnd{Err: w.err, Stamps: []string{w.stamp}})
	tell(w.flight.opts.Observer.Wait, WaitEvent{
		Key: w.flight.key, Took: time.Since(w.begun), Polls: w.polls, Wakes: w.wakes, Stamp: w.stamp, Err: w.err,
	})
}
