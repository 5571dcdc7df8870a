package stockade

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/script"
)

// lease is the right to load a key and to commit the result.
type lease struct {
	token, stamp string
	time         int64     // of the grant, server µs
	at           time.Time // when it was heard of
}

// serverTime is the server's time now, by the grant's and the monotonic time since, µs.
func (l lease) serverTime() int64 { return l.time + time.Since(l.at).Microseconds() }

// loaded is how a loader ended.
type loaded struct {
	answer
	err  error
	took time.Duration
}

// loadLeased loads under a lease and commits.
func (f *flight) loadLeased(l lease) *outcome {
	start := f.seq.Add(1)
	f.start.Store(start)
	load := f.traceLoad()
	r := f.hold(load.ctx, l)
	e := f.end(l, r, start, true)
	load.end(loadEnd(r.ruledOut, e.err, l.stamp))
	commit := f.traceCommit()
	status, number := f.finish(e.op, e.call)
	if status == script.Missing { // what was to be touched is gone
		e = f.end(l, r, start, false)
		status, number = f.finish(e.op, e.call)
	}
	o := f.conclude(l, e, status, number)
	commit.end(SpanEnd{Outcomes: []Outcome{e.event.Outcome}})
	return o
}

// loadUnleased loads without a lease, since Redis failed, or returns that it did.
func (f *flight) loadUnleased(token string, cause error) *outcome {
	f.disown(token, cause)
	if o := f.unloaded(cause); o != nil {
		f.leave()
		return o
	}
	down, epoch := f.isDown(), f.memory.now()
	o := &outcome{validAt: f.seq.Add(1)}
	load := f.traceLoad()
	r := asLoaded(waitFor(f.begin(load.ctx)))
	if r.ruledOut {
		o.err = f.notFound
	} else {
		f.keep(o, r, down && f.isDown(), epoch, cause)
	}
	load.end(loadEnd(r.ruledOut, o.err, ""))
	return o
}

// unreached is the error of a flight for which Redis failed, or which Close has ended.
func (f *flight) unreached(cause error) error {
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return redisError(cause)
}

// unloaded is the outcome of a flight that loads nothing though Redis failed; nil when it has to.
func (f *flight) unloaded(cause error) *outcome {
	if f.ctx.Err() != nil || f.opts.WhenRedisFails == ReturnError {
		return f.failed(f.unreached(cause))
	}
	if e, err, ok := f.recall(f.key); ok {
		return &outcome{entry: e, err: err, validAt: always}
	}
	return nil
}

// keep settles what was loaded without a lease, and remembers it when that may be.
func (f *flight) keep(o *outcome, r loaded, down bool, epoch uint64, cause error) {
	var lasts time.Duration
	o.entry, o.err = f.settle(r)
	switch o.private = f.isPrivate(o.err); {
	case o.private:
	case o.err == nil:
		if !o.entry.NoStore {
			lasts = min(f.lifetimes(o.entry).fresh, memoryTTL)
		}
	case isAbsent(o.err):
		lasts = min(f.policy.AbsentTTL, memoryTTL)
	default:
		lasts = min(f.opts.FailureBackoff, memoryTTL)
	}
	// Who arrived after the load began does not have its outcome: another process may still reach Redis, and may have had
	// a write acknowledged meanwhile. Such a caller goes round, and meets what is remembered: nothing while the server is
	// full, for then it refuses leases and acknowledges invalidations.
	if lasts > 0 && (down || !isTransport(cause) && !redis.IsOOMError(cause)) {
		now := time.Now()
		f.memory.remember(f.key, epoch, remembered{entry: o.entry, err: o.err, begun: now.Add(-r.took), until: now.Add(lasts)})
	}
	f.tellLoad(LoadEvent{Key: f.key, Took: r.took, Outcome: NotStored}, o)
}

// isDown reports whether the key's node does not answer.
func (f *flight) isDown() bool {
	n, err := f.nodes.of(f.ctx, f.names.Value)
	if err != nil {
		n = f.nodes.single
	}
	return n.isOpen.Load()
}

func (f *flight) tellLoad(e LoadEvent, o *outcome) {
	e.Err = o.err
	if o.err != nil && !isAbsent(o.err) {
		f.stats.loadErrors.Add(1)
	}
	if e.Outcome == Rejected {
		f.stats.rejected.Add(1)
	}
	tell(f.opts.Observer.Load, e)
}

// hold runs the loader under a lease, with the values of a context.
func (f *flight) hold(values context.Context, l lease) loaded {
	ctx, landed := f.begin(values)
	return asLoaded(hold(f.core, ctx, landed, f.wakes, func() script.Status {
		status := f.renew(l)
		if status == script.Lost {
			f.lose()
		}
		return status
	}))
}

func (f *flight) renew(l lease) script.Status {
	status, _ := f.finish("renew", script.Renew(f.names.Lease, l.token, f.opts.LeaseTTL))
	return status
}

// begin asks the Guard and runs the loader, with the values of a context.
func (f *flight) begin(values context.Context) (context.Context, <-chan landing[answer]) {
	old, from := f.saw.old(), f.load // before shed
	mark := &loading{core: f.core, key: f.key, outer: loadingIn(f.caller)}
	return launch(f.core, values, mark, f.leave, func(ctx context.Context) (a answer, err error) {
		if f.guard && f.rulesOut(ctx, []string{f.key})[f.key] {
			return answer{ruledOut: true}, nil
		}
		if err := context.Cause(ctx); err != nil {
			return a, err
		}
		f.stats.loads.Add(1)
		if old != nil {
			*old = f.share(*old) // the value may be stored again, and the local tier may have it
		}
		a.entry, err = f.format.of.load(ctx, from, f.key, old)
		return a, err
	})
}

// answer is what came of a key: of its loader, or of the Guard.
type answer struct {
	entry    boxed
	ruledOut bool // by the Guard, so that no loader ran
}

func asLoaded(l landing[answer]) loaded {
	return loaded{answer: l.result, err: l.err, took: l.took}
}

// lifetimes draws those of an entry.
func (p Policy) lifetimes(ttl, staleFor, keepFor time.Duration) lifetimes {
	if ttl == 0 {
		ttl = p.TTL
	}
	if staleFor == 0 {
		staleFor = p.StaleFor
	}
	if keepFor == 0 {
		keepFor = p.KeepFor
	}
	return lifetimes{fresh: jittered(ttl, max(p.Jitter, 0), rand.Float64()), stale: max(staleFor, 0), keep: max(keepFor, 0)}
}

func (f *flight) lifetimes(e boxed) lifetimes {
	return f.policy.lifetimes(e.TTL, e.StaleFor, e.KeepFor)
}

// headFor writes the head of what was loaded under a lease.
func (l lease) headFor(life lifetimes, kind entryKind, took time.Duration) head {
	now := l.serverTime() / 1000
	return head{
		kind: kind, token: l.token, loadedAt: l.time / 1000, cost: max(took.Microseconds(), 1),
		freshUntil: now + life.fresh.Milliseconds(), staleUntil: now + (life.fresh + life.stale).Milliseconds(),
	}
}

// ending is how a lease ends: what callers get, and the step that says so to the fleet.
type ending struct {
	*outcome
	event  LoadEvent
	op     string
	call   script.Call
	head   head // of what is to be stored; zero when that is nothing
	stores bool // the step may be rejected
	silent bool // no loader ran
}

// end decides how a lease ends. touch says that a stored value may get a new head only.
func (f *flight) end(l lease, r loaded, start uint64, touch bool) *ending {
	e := &ending{
		outcome: &outcome{validAt: start},
		event:   LoadEvent{Key: f.key, Took: r.took, Stamp: l.stamp, Outcome: NotStored},
		op:      "release", call: script.Release(f.names, l.token, f.channel),
	}
	if r.ruledOut {
		e.err, e.silent = f.notFound, true // and those who wait ask the Guard themselves
		return e
	}
	// What a newer version wrote is not ours to overwrite.
	mayStore := f.saw.state != newer
	switch entry, err := f.settle(r); {
	case err == nil:
		e.entry = entry
		if mayStore && !entry.NoStore {
			f.endStored(e, l, r, touch && errors.Is(r.err, ErrNotModified))
		}
	case isAbsent(err):
		e.err = err
		if mayStore {
			f.endAbsent(e, l, r)
		}
	default:
		e.err, e.private = err, f.isPrivate(err)
		if failed := asLoadError(err); failed != nil && !e.private {
			f.endFailed(e, l, failed)
		}
		if errors.Is(err, ErrClosed) {
			e.validAt = always
		}
	}
	return e
}

// endStored ends with a commit.
func (f *flight) endStored(e *ending, l lease, r loaded, touch bool) {
	life := f.lifetimes(e.entry)
	e.head = l.headFor(life, kindValue, r.took)
	if touch {
		e.op, e.stores = "touch", true
		e.call = script.Touch(f.names, l.token, l.stamp, e.head.append(nil), life.total(), f.channel, *f.saw.seen())
		return
	}
	entry, err := f.format.encode(e.head, e.entry.ETag, e.entry.Value)
	if err != nil {
		failed := &LoadError{Err: err}
		e.err = failed
		f.endFailed(e, l, failed)
		return
	}
	e.op, e.stores = "commit", true
	e.call = script.Commit(f.names, l.token, l.stamp, entry, life.total(), f.channel)
}

// endAbsent ends with a commit of the absence, or with the removal of what is stored when that is not to be remembered.
func (f *flight) endAbsent(e *ending, l lease, r loaded) {
	e.stores = true
	if f.policy.AbsentTTL < 0 {
		e.op, e.call = "drop", script.Drop(f.names, l.token, l.stamp, f.channel)
		return
	}
	life := lifetimes{fresh: jittered(f.policy.AbsentTTL, max(f.policy.Jitter, 0), rand.Float64())}
	e.head = l.headFor(life, kindAbsent, r.took)
	entry := encodeAbsent(e.head)
	e.op, e.call = "commit", script.Commit(f.names, l.token, l.stamp, entry, life.total(), f.channel)
}

// endFailed keeps the fleet off the key for FailureBackoff. Those who wait get the failure even without a backoff, so it
// is kept for a second.
func (f *flight) endFailed(e *ending, l lease, failed *LoadError) {
	failed.stamp = l.stamp
	backoff := max(f.opts.FailureBackoff, 0)
	until := int64(0)
	if backoff > 0 {
		until = l.serverTime() + backoff.Microseconds()
	}
	message := failed.Err.Error()
	message = message[:min(len(message), maxMessage)]
	e.op, e.call = "fail", script.Fail(f.names, l.token, l.stamp, until, message, max(backoff, time.Second), f.channel)
}

// conclude takes up what the step answered, with the number of its sending.
func (f *flight) conclude(l lease, e *ending, status script.Status, number uint64) *outcome {
	if e.stores {
		switch status {
		case script.Stored, script.Already:
			e.validAt, e.event.Outcome = number, Stored
			if e.head == (head{}) {
				f.local.gone(f.key, number)
			} else {
				f.keepLocal(stored{e.head, e.entry.ETag, e.entry.Value}, number)
			}
		case unanswered:
			e.event.Outcome = Unknown
			f.calls.Run(func() { f.release(l) }) // if it was refused, others must not wait for the lease to expire
		default:
			e.event.Outcome = Rejected
			select {
			case <-f.lost: // as a renewal has found
			default:
				f.stats.lostLeases.Add(1)
			}
		}
	}
	if !e.silent {
		f.tellLoad(e.event, e.outcome)
	}
	return e.outcome
}

// finish sends a step of a holder, with its number. It has a context of its own: no caller's end, and no Close, keeps a
// lease from being given back.
func (f *flight) finish(op string, call script.Call) (script.Status, uint64) {
	n, err := f.nodes.of(context.Background(), f.names.Lease)
	if err != nil {
		return unanswered, 0
	}
	number := f.seq.Add(1)
	r, err := step(context.Background(), n, op, func(ctx context.Context, r script.Runner) (script.Result, error) {
		return script.Do(ctx, r, call)
	})
	if err != nil {
		return unanswered, 0
	}
	return r.Status, number
}

// unanswered stands for the status of a step that got no answer, or was refused.
const unanswered script.Status = -1

// maxMessage bounds the text of a failure in Redis.
const maxMessage = 1024

// release gives the lease back.
func (f *flight) release(l lease) {
	f.finish("release", script.Release(f.names, l.token, f.channel))
}

// disown gives a lease back that an unanswered acquire may have been granted, in the background.
func (f *flight) disown(token string, cause error) {
	if mayBeGranted(cause) {
		f.calls.Run(func() { f.release(lease{token: token}) })
	}
}

// mayBeGranted reports whether an acquire that failed so may have been executed.
func mayBeGranted(err error) bool { return isTransport(err) && !errors.As(err, new(errOpen)) }
