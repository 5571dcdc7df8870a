package stockade

import (
	"context"
	"math/rand/v2"
	"time"
)

// wait waits for leases of other processes, as a flight does that is alone. Keys of which a message has come are read by
// a trip, and asked for when they are not there; a poll asks for all that are left.
func (b *batch) wait(pending []*bid, woken <-chan struct{}) {
	begun := time.Now()
	b.bus.Start()
	part := b.traceWait(pending)
	for _, bid := range pending {
		bid.wait.waited, bid.wait.begun, bid.wait.span = true, begun, part
		b.stats.waits.Add(1)
	}
	polls, polled := 0, begun
	for len(pending) > 0 {
		budget := begun.Add(b.opts.LoadTimeout)
		if !time.Now().Before(budget) {
			decideAll(pending, ErrLoadTimeout)
			return
		}
		timer := time.NewTimer(time.Until(earliest(budget, b.nextPoll(pending, polls, polled))))
		var ask, rest []*bid
		select {
		case <-woken:
			ask, rest = b.sortOut(pending)
			ask = b.peek(ask)
		case <-timer.C:
			polls, polled = polls+1, time.Now()
			for _, bid := range pending {
				bid.wait.polls++
				b.stats.polls.Add(1)
			}
			ask = pending
		case <-b.ctx.Done():
			timer.Stop()
			decideAll(pending, context.Cause(b.ctx))
			return
		}
		timer.Stop()
		if len(ask) > 0 && !ask[0].tryEnter() {
			// While others load, the values may be there already. What is not, waits for a place alone: it must not keep the rest.
			for _, bid := range b.peek(ask) {
				bid.decide(nil)
			}
			ask = nil
		}
		if len(ask) > 0 {
			rest = append(rest, b.ask(ask)...)
		}
		pending = rest
	}
}

// nextPoll says when all that is pending is asked for: by the rule of one flight, or when a lease may have expired, which
// sends no message; a millisecond later it is gone for certain.
func (b *batch) nextPoll(pending []*bid, polls int, polled time.Time) time.Time {
	first, spread := firstPoll, 0.5
	if b.bus.Live() {
		first, spread = firstAwokenPoll, 0.25
	}
	next := polled.Add(pollDelay(first, polls, spread, rand.Float64()))
	for _, bid := range pending {
		bid.wait.stamp = bid.acquired.Stamp
		next = earliest(next, bid.answered.Add(bid.acquired.PTTL+time.Millisecond))
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sortOut tells the keys of which a message has come from the rest.
func (b *batch) sortOut(pending []*bid) (woken, rest []*bid) {
	for _, bid := range pending {
		select {
		case <-bid.waiter.C:
			bid.wait.wakes++
			b.stats.wakes.Add(1)
			woken = append(woken, bid)
		default:
			rest = append(rest, bid)
		}
	}
	return woken, rest
}

// peek reads keys by a trip and returns those that are not there.
func (b *batch) peek(bids []*bid) (missing []*bid) {
	keys := make([]string, len(bids))
	for i, bid := range bids {
		keys[i] = bid.key
	}
	number := b.seq.Add(1)
	for i, l := range b.lookMany(b.ctx, keys) {
		if bid := bids[i]; l.err == nil && (l.state == fresh || l.state == stale) {
			bid.decide(bid.found(l.sight, true, number))
		} else {
			missing = append(missing, bid)
		}
	}
	return missing
}
