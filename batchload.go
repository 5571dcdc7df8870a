package stockade

import (
	"context"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/internal/bus"
	"github.com/stockade-cache/stockade/internal/script"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// batch is the load of many keys by one call of a loader. Each key has a flight of its own, which others join; a flight
// that turns out to be another's to load leaves the batch and goes on alone.
type batch struct {
	*core
	load    source // a BatchLoader
	caller  context.Context
	flights []*flight
}

// bid is one flight's part in a batch.
type bid struct {
	*flight
	waiter   *bus.Waiter
	token    string
	acquired script.Acquired
	answered time.Time // when acquired was
	err      error     // of the acquire
	lease    lease     // when granted
	lost     bool      // the lease
	wait     waiting
	// Of a load without a lease:
	node  *node // nil when it is not known
	down  bool
	epoch uint64
}

// isDown reports whether the key's node does not answer.
func (bid *bid) isDown() bool {
	if bid.node == nil {
		return bid.nodes.single.isOpen.Load()
	}
	return bid.flight.isDown()
}

// maxBatch bounds the steps of one pipeline, and pipelineBytes what it carries: each has to be done within RedisTimeout.
const (
	maxBatch      = 256
	pipelineBytes = 1 << 20
)

// decide ends a flight, or with nil lets it go on alone.
func (bid *bid) decide(o *outcome) {
	bid.wait.tell()
	bid.waiter.Stop()
	bid.verdict <- o
}

// decideAll ends flights with one error.
func decideAll(bids []*bid, err error) {
	for _, bid := range bids {
		bid.wait.err = err
		bid.decide(bid.failed(err))
	}
}

// fill gets the keys of all flights into Redis, or out of it.
func (b *batch) fill() {
	names := make([]string, len(b.flights))
	for i, f := range b.flights {
		names[i] = f.names.Value
	}
	waiters, woken := b.bus.RegisterAll(names) // before the acquire, so that no wake is missed after it
	bids := make([]*bid, len(b.flights))
	for i, f := range b.flights {
		bids[i] = &bid{flight: f, waiter: waiters[i], token: newToken(), wait: waiting{flight: f}}
	}
	if lead := bids[0]; !lead.tryEnter() { // all are nested, or none is
		var queued time.Duration
		if err := lead.enter(&queued); err != nil {
			decideAll(bids, err)
			return
		}
	}
	if busy := b.ask(bids); len(busy) > 0 {
		b.wait(busy, woken)
	}
}

// ask asks for the leases of flights under one permit, and starts the load of what is granted. It returns those that
// another process holds.
func (b *batch) ask(bids []*bid) (busy []*bid) {
	leave := bids[0].leave
	sent := b.seq.Add(1)
	b.acquire(bids)
	b.disown(bids)
	var load []*bid
	var waiters []*bus.Waiter // of what is loaded: a message about it is for its holder
	for _, bid := range bids {
		a := bid.acquired
		switch {
		case bid.err != nil:
			bid.wait.err = bid.unreached(bid.err)
			if o := bid.unloaded(bid.err); o != nil {
				bid.decide(o)
				continue
			}
			bid.wait.tell()
			bid.down, bid.epoch = bid.isDown(), bid.memory.now()
			load = append(load, bid)
		case a.Status == script.Granted:
			bid.wait.tell() // the load is no part of it
			load, waiters = append(load, bid), append(waiters, bid.waiter)
		case a.Status == script.Hit && a.Inline:
			if saw := bid.judge(a.Value, a.Time/1000); saw.state == fresh || saw.state == stale {
				bid.decide(bid.found(saw, bid.wait.waited, sent))
			} else {
				bid.saw = saw
				bid.decide(nil)
			}
		case a.Status == script.Failed:
			o := remoteFailure(a, sent)
			bid.wait.err = o.err
			bid.decide(o)
		case a.Status == script.Busy:
			busy = append(busy, bid)
		default:
			bid.decide(nil)
		}
	}
	changed := b.bus.Regroup(waiters)
	switch {
	case len(load) == 0:
		leave()
	case !b.work.Run(func() {
		for i, o := range b.loadAll(load, changed, leave) {
			load[i].decide(o)
		}
	}):
		leave()
		b.finishAll("release", load, b.releases(load))
		decideAll(load, ErrClosed)
	}
	return busy
}

// acquire asks for leases, with a pipeline for each node.
func (b *batch) acquire(bids []*bid) {
	groups := b.byNode(b.ctx, len(bids), func(i int) string { return bids[i].names.Lease }, func(i int, err error) { bids[i].node, bids[i].err = nil, err })
	each(groups, func(n *node, group []int) {
		for part := range slices.Chunk(group, maxBatch) {
			list := make([]*bid, len(part))
			for j, i := range part {
				list[j] = bids[i]
				bids[i].node = n
			}
			b.acquireFrom(n, list)
		}
	})
}

// acquireFrom asks one node. Requests that it found too late are sent once more, by the time that it told.
func (b *batch) acquireFrom(n *node, bids []*bid) {
	for try := range 2 {
		// The call may go on when it was given up, so it has what it needs for itself.
		asked, seen, waited := bids, make([]*string, len(bids)), make([]string, len(bids))
		for i, bid := range bids {
			seen[i], waited[i] = bid.saw.seen(), bid.wait.stamp
		}
		list, errs := stepMany(b.ctx, n, "acquire", len(bids), func(ctx context.Context, p script.Pipeliner) ([]script.Acquired, []error) {
			calls := make([]script.Call, len(asked))
			for i, bid := range asked {
				calls[i] = script.AcquireCall(bid.names, bid.token, b.opts.LeaseTTL, n.clock.after(b.opts.RedisTimeout), seen[i], waited[i])
			}
			list, errs := script.AcquireMany(ctx, p, calls)
			if ctx.Err() != nil {
				// Too late: nobody waits for the answer any more.
				_, _ = script.DoMany(context.WithoutCancel(ctx), p, b.releases(asked))
				return list, slices.Repeat([]error{context.Cause(ctx)}, len(asked))
			}
			return list, errs
		})
		var late []*bid
		for i, bid := range bids {
			if bid.err = errs[i]; bid.err != nil {
				continue
			}
			bid.acquired, bid.answered = list[i], time.Now()
			switch bid.acquired.Status {
			case script.TooLate:
				n.clock.correct(bid.acquired.Time)
				bid.err = tasks.TimeoutError{After: b.opts.RedisTimeout}
				late = append(late, bid)
			case script.Granted:
				bid.lease = lease{token: bid.token, stamp: bid.acquired.Stamp, time: bid.acquired.Time, at: bid.answered}
			}
		}
		if bids = late; len(bids) == 0 || try == 1 {
			return
		}
	}
}

func (b *batch) releases(bids []*bid) []script.Call {
	calls := make([]script.Call, len(bids))
	for i, bid := range bids {
		calls[i] = script.Release(bid.names, bid.token, b.channel)
	}
	return calls
}

// disown gives leases back that unanswered acquires may have been granted, in the background.
func (b *batch) disown(bids []*bid) {
	var unanswered []*bid
	for _, bid := range bids {
		if bid.err != nil && mayBeGranted(bid.err) {
			unanswered = append(unanswered, bid)
		}
	}
	if len(unanswered) > 0 {
		b.calls.Run(func() { b.finishAll("release", unanswered, b.releases(unanswered)) })
	}
}

// loadAll loads by one call of the loader and commits. The outcomes are the bids', in their order.
func (b *batch) loadAll(bids []*bid, changed <-chan struct{}, leave func()) []*outcome {
	start := b.seq.Add(1)
	for _, bid := range bids {
		if bid.err == nil {
			bid.start.Store(start)
		}
	}
	span := b.trace(SpanLoad, bids)
	ctx, landed := b.begin(span.ctx, bids, leave)
	l := hold(b.core, ctx, landed, changed, func() script.Status { return b.renew(bids) })
	outcomes := make([]*outcome, len(bids))
	var leased []*bid
	var endings []*ending
	var calls []script.Call
	for i, bid := range bids {
		r := l.result.of(bid.key, l.err, l.took)
		switch {
		case bid.err == nil:
			e := bid.end(bid.lease, r, start, false)
			leased, endings, calls = append(leased, bid), append(endings, e), append(calls, e.call)
			outcomes[i] = e.outcome
		case r.ruledOut:
			outcomes[i] = &outcome{err: b.notFound, validAt: start}
		default:
			outcomes[i] = &outcome{validAt: start}
			bid.keep(outcomes[i], r, bid.down && bid.isDown(), bid.epoch, bid.err)
		}
	}
	span.end(loadEndOf(bids, outcomes, len(l.result.ruledOut)))
	if len(leased) == 0 {
		return outcomes
	}
	span = b.trace(SpanCommit, leased)
	for i, r := range b.finishAll("commit", leased, calls) {
		leased[i].conclude(leased[i].lease, endings[i], r.status, r.number)
	}
	span.end(commitEndOf(endings))
	return outcomes
}

// batchAnswer is what came of the keys of a batch.
type batchAnswer struct {
	values   map[string]any  // pointers to values
	ruledOut map[string]bool // by the Guard
}

// of is the part of one key.
func (a batchAnswer) of(key string, err error, took time.Duration) loaded {
	r := loaded{took: took}
	if r.ruledOut = a.ruledOut[key]; !r.ruledOut {
		r.entry.Value, r.err = pick(a.values, err, key)
		r.err = sound(r.err) // one of a KeysError has not been asked
	}
	return r
}

// begin asks the Guard about all keys and runs the loader for those that may exist, with the values of a context.
func (b *batch) begin(values context.Context, bids []*bid, leave func()) (context.Context, <-chan landing[batchAnswer]) {
	asked := map[string]bool{}
	var keys []string
	for _, bid := range bids {
		asked[bid.key] = true
		keys = append(keys, bid.key)
	}
	guard, from := bids[0].guard, b.load // before shed
	mark := &loading{core: b.core, keys: asked, outer: loadingIn(b.caller)}
	return launch(b.core, values, mark, leave, func(ctx context.Context) (a batchAnswer, err error) {
		if guard {
			a.ruledOut = b.rulesOut(ctx, keys)
			keys = slices.DeleteFunc(keys, func(key string) bool { return a.ruledOut[key] })
		}
		if err := context.Cause(ctx); err != nil || len(keys) == 0 {
			return a, err
		}
		b.stats.loads.Add(1)
		a.values, err = b.format.of.loadMany(ctx, from, keys)
		if b.opts.Observer.Load != nil {
			for key := range a.values {
				if !asked[key] || a.ruledOut[key] {
					tell(b.opts.Observer.Load, LoadEvent{Key: key, Outcome: Ignored})
				}
			}
		}
		return a, err
	})
}

// renew renews the leases that are not lost.
func (b *batch) renew(bids []*bid) script.Status {
	var held []*bid
	var calls []script.Call
	for _, bid := range bids {
		if bid.err == nil && !bid.lost {
			held = append(held, bid)
			calls = append(calls, script.Renew(bid.names.Lease, bid.token, b.opts.LeaseTTL))
		}
	}
	all := script.Lost
	for i, r := range b.finishAll("renew", held, calls) {
		switch {
		case r.status == script.Lost:
			held[i].lost = true
			held[i].lose()
		case all != unanswered:
			all = r.status
		}
	}
	return all
}

// finished is the answer to a step of a holder.
type finished struct {
	status script.Status
	number uint64
}

// finishAll is finish for many: a pipeline for each node, or several when there is much to send.
func (b *batch) finishAll(op string, bids []*bid, calls []script.Call) []finished {
	ctx := context.Background()
	list := make([]finished, len(bids))
	groups := b.byNode(ctx, len(bids), func(i int) string { return bids[i].names.Lease }, func(i int, _ error) { list[i].status = unanswered })
	each(groups, func(n *node, group []int) {
		for len(group) > 0 {
			count, size := 0, 0
			for count < min(len(group), maxBatch) && (count == 0 || size+calls[group[count]].Size() <= pipelineBytes) {
				size += calls[group[count]].Size()
				count++
			}
			part := make([]script.Call, count)
			for j, i := range group[:count] {
				part[j] = calls[i]
			}
			number := b.seq.Add(1)
			results, errs := stepMany(ctx, n, op, count, func(ctx context.Context, p script.Pipeliner) ([]script.Result, []error) {
				return script.DoMany(ctx, p, part)
			})
			for j, i := range group[:count] {
				if list[i] = (finished{results[j].Status, number}); errs[j] != nil {
					list[i].status = unanswered
				}
			}
			group = group[count:]
		}
	})
	return list
}
