package stockade

import (
	"context"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/internal/script"
)

// batch is the load of many keys by one call of a loader. Each key has a flight of its own, which others join; a flight
// that turns out to be another's to load leaves the batch and goes on alone.
type batch[T any] struct {
	*core[T]
	load    BatchLoader[T]
	caller  context.Context
	flights []*flight[T]
}

// bid is one flight's part in a batch.
type bid[T any] struct {
	*flight[T]
	token    string
	acquired script.Acquired
	err      error // of the acquire
	lease    lease // when granted
	lost     bool  // the lease
	// Of a load without a lease:
	down  bool
	epoch uint64
}

// maxBatch bounds the steps of one pipeline, and pipelineBytes what it carries: each has to be done within RedisTimeout.
const (
	maxBatch      = 256
	pipelineBytes = 1 << 20
)

// decide ends a flight of a batch, or with nil lets it go on alone.
func (f *flight[T]) decide(o *outcome[T]) { f.verdict <- o }

func (b *batch[T]) fail(err error) {
	for _, f := range b.flights {
		f.decide(f.failed(err))
	}
}

// fill asks for all leases at once and loads what was granted.
func (b *batch[T]) fill() {
	lead := b.flights[0] // all are nested, or none is
	for _, f := range b.flights {
		f.waiter = f.bus.Register(f.names.Value) // before the acquire, so that no wake is missed after it
	}
	if !lead.tryEnter() {
		var queued time.Duration
		if err := lead.enter(&queued); err != nil {
			b.fail(err)
			return
		}
	}
	sent := b.seq.Add(1)
	var load []*bid[T]
	bids := b.acquire()
	b.disown(bids)
	for _, bid := range bids {
		f, a := bid.flight, bid.acquired
		switch {
		case bid.err != nil:
			if o := f.unloaded(bid.err); o != nil {
				f.decide(o)
				continue
			}
			bid.down, bid.epoch = f.isDown(), f.memory.now()
			load = append(load, bid)
		case a.Status == script.Granted:
			load = append(load, bid)
		case a.Status == script.Hit && a.Inline:
			if saw := f.judge(a.Value, a.Time/1000); saw.state == fresh || saw.state == stale {
				f.decide(f.found(saw, false, sent))
			} else {
				f.saw = saw
				f.decide(nil)
			}
		case a.Status == script.Failed:
			f.decide(remoteFailure[T](a, sent))
		default:
			if a.Status == script.Busy {
				f.busy = &a
			}
			f.decide(nil)
		}
	}
	if len(load) == 0 {
		lead.leave()
		return
	}
	for i, o := range b.loadAll(load, lead.leave) {
		load[i].decide(o)
	}
}

// acquire asks for the lease of every flight.
func (b *batch[T]) acquire() []*bid[T] {
	bids := make([]*bid[T], len(b.flights))
	for i, f := range b.flights {
		bids[i] = &bid[T]{flight: f, token: newToken()}
	}
	groups := b.byNode(b.ctx, len(bids), func(i int) string { return bids[i].names.Lease }, func(i int, err error) { bids[i].err = err })
	each(groups, func(n *node, group []int) {
		for part := range slices.Chunk(group, maxBatch) {
			list := make([]*bid[T], len(part))
			for j, i := range part {
				list[j] = bids[i]
			}
			b.acquireFrom(n, list)
		}
	})
	return bids
}

// acquireFrom asks one node. Requests that it found too late are sent once more, by the time that it told.
func (b *batch[T]) acquireFrom(n *node, bids []*bid[T]) {
	for try := range 2 {
		// The call may go on when it was given up, so it has what it needs for itself.
		asked, seen := bids, make([]*string, len(bids))
		for i, bid := range bids {
			seen[i] = bid.saw.seen()
		}
		r, err := step(b.ctx, n, "acquire", func(ctx context.Context, r script.Runner) (acquisitions, error) {
			calls := make([]script.Call, len(asked))
			for i, bid := range asked {
				calls[i] = script.AcquireCall(bid.names, bid.token, b.opts.LeaseTTL, n.clock.after(b.opts.RedisTimeout), seen[i], "")
			}
			list, errs := script.AcquireMany(ctx, r.(script.Pipeliner), calls)
			if ctx.Err() != nil {
				// Too late: nobody waits for the answer any more.
				_, _ = script.DoMany(context.WithoutCancel(ctx), r.(script.Pipeliner), b.releases(asked))
				return acquisitions{}, context.Cause(ctx)
			}
			return acquisitions{list, errs}, firstTransport(errs)
		})
		var late []*bid[T]
		for i, bid := range bids {
			switch {
			case r.errs == nil:
				bid.err = err
				continue
			case r.errs[i] != nil:
				if bid.err = r.errs[i]; err == nil {
					n.note("acquire", bid.err) // a refusal
				}
				continue
			}
			bid.err, bid.acquired = nil, r.list[i]
			switch bid.acquired.Status {
			case script.TooLate:
				n.clock.correct(bid.acquired.Time)
				bid.err = timeoutError{b.opts.RedisTimeout}
				late = append(late, bid)
			case script.Granted:
				bid.lease = lease{token: bid.token, stamp: bid.acquired.Stamp, time: bid.acquired.Time, at: time.Now()}
			}
		}
		if bids = late; len(bids) == 0 || try == 1 {
			return
		}
	}
}

// acquisitions are the answers to the acquires of one pipeline.
type acquisitions struct {
	list []script.Acquired
	errs []error
}

// ServerTime returns the time of any of them.
func (a acquisitions) ServerTime() int64 {
	for i := range a.list {
		if a.errs[i] == nil {
			return a.list[i].Time
		}
	}
	return 0
}

func (b *batch[T]) releases(bids []*bid[T]) []script.Call {
	calls := make([]script.Call, len(bids))
	for i, bid := range bids {
		calls[i] = script.Release(bid.names, bid.token, b.channel)
	}
	return calls
}

// disown gives leases back that unanswered acquires may have been granted, in the background.
func (b *batch[T]) disown(bids []*bid[T]) {
	var unanswered []*bid[T]
	for _, bid := range bids {
		if bid.err != nil && mayBeGranted(bid.err) {
			unanswered = append(unanswered, bid)
		}
	}
	if len(unanswered) > 0 {
		b.calls.run(func() { b.finishAll("release", unanswered, b.releases(unanswered)) })
	}
}

// loadAll loads by one call of the loader and commits. The outcomes are the bids', in their order.
func (b *batch[T]) loadAll(bids []*bid[T], leave func()) []*outcome[T] {
	start := b.seq.Add(1)
	var names []string
	for _, bid := range bids {
		if bid.err == nil {
			bid.start.Store(start)
			names = append(names, bid.names.Value)
		}
	}
	wakes := b.bus.RegisterAll(names)
	defer wakes.Stop()
	ctx, landed := b.begin(bids, leave)
	l := hold(b.core, ctx, landed, wakes.C, func() script.Status { return b.renew(bids) })
	outcomes := make([]*outcome[T], len(bids))
	var leased []*bid[T]
	var endings []*ending[T]
	var calls []script.Call
	for i, bid := range bids {
		r := l.result.of(bid.key, l.err, l.took)
		switch {
		case bid.err == nil:
			e := bid.end(bid.lease, r, start, false)
			leased, endings, calls = append(leased, bid), append(endings, e), append(calls, e.call)
			outcomes[i] = e.outcome
		case r.ruledOut:
			outcomes[i] = &outcome[T]{err: b.notFound, validAt: start}
		default:
			outcomes[i] = &outcome[T]{validAt: start}
			bid.keep(outcomes[i], r, bid.down, bid.epoch, bid.err)
		}
	}
	for i, r := range b.finishAll("commit", leased, calls) {
		leased[i].conclude(leased[i].lease, endings[i], r.status, r.number)
	}
	return outcomes
}

// batchAnswer is what came of the keys of a batch.
type batchAnswer[T any] struct {
	values   map[string]T
	ruledOut map[string]bool // by the Guard
}

// of is the part of one key.
func (a batchAnswer[T]) of(key string, err error, took time.Duration) loaded[T] {
	r := loaded[T]{took: took}
	if r.ruledOut = a.ruledOut[key]; !r.ruledOut {
		r.entry.Value, r.err = pick(a.values, err, key)
	}
	return r
}

// begin asks the Guard about all keys and runs the loader for those that may exist.
func (b *batch[T]) begin(bids []*bid[T], leave func()) (context.Context, <-chan landing[batchAnswer[T]]) {
	asked := map[string]bool{}
	var keys []string
	for _, bid := range bids {
		asked[bid.key] = true
		keys = append(keys, bid.key)
	}
	guard := bids[0].guard
	mark := &loading{core: b.core, keys: asked, outer: loadingIn(b.caller)}
	return launch(b.core, b.caller, mark, leave, func(ctx context.Context) (a batchAnswer[T], err error) {
		if guard {
			a.ruledOut = b.rulesOut(ctx, keys)
			keys = slices.DeleteFunc(keys, func(key string) bool { return a.ruledOut[key] })
		}
		if err := context.Cause(ctx); err != nil || len(keys) == 0 {
			return a, err
		}
		b.stats.loads.Add(1)
		a.values, err = b.load(ctx, keys)
		if b.opts.Observer.Load != nil {
			for key := range a.values {
				if !asked[key] || a.ruledOut[key] {
					b.opts.Observer.Load(LoadEvent{Key: key, Outcome: Ignored})
				}
			}
		}
		return a, err
	})
}

// renew renews the leases that are not lost.
func (b *batch[T]) renew(bids []*bid[T]) script.Status {
	var held []*bid[T]
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
func (b *batch[T]) finishAll(op string, bids []*bid[T], calls []script.Call) []finished {
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
			r, err := step(ctx, n, op, func(ctx context.Context, r script.Runner) (results, error) {
				list, errs := script.DoMany(ctx, r.(script.Pipeliner), part)
				return results{list, errs}, firstTransport(errs)
			})
			for j, i := range group[:count] {
				list[i] = finished{unanswered, number}
				switch {
				case r.errs == nil:
				case r.errs[j] == nil:
					list[i].status = r.list[j].Status
				case err == nil:
					n.note(op, r.errs[j]) // a refusal
				}
			}
			group = group[count:]
		}
	})
	return list
}
