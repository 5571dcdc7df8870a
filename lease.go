package stockade

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
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
type loaded[T any] struct {
	entry Entry[T]
	err   error
	took  time.Duration
	// ruledOut says that the Guard did, so that no loader ran.
	ruledOut bool
}

// loadLeased loads under a lease and commits.
func (f *flight[T]) loadLeased(l lease) *outcome[T] {
	o := &outcome[T]{validAt: f.seq.Add(1)}
	f.start.Store(o.validAt)
	r := f.hold(l)
	if r.ruledOut {
		f.release(l) // and those who wait ask the Guard themselves
		o.err = f.notFound
		return o
	}
	event := LoadEvent{Key: f.key, Took: r.took, Stamp: l.stamp, Outcome: NotStored}
	switch e, err := f.settle(r); {
	case err == nil && e.NoStore:
		f.release(l)
		o.entry = e
	case err == nil:
		var sent uint64
		if sent, event.Outcome, o.err = f.commit(l, r, e); sent > 0 {
			o.validAt = sent
		}
		o.entry = e
	case errors.Is(err, ErrNotFound):
		var sent uint64
		if sent, event.Outcome = f.commitAbsent(l, r); sent > 0 {
			o.validAt = sent
		}
		o.err = err
	default:
		o.err, o.private = err, f.isPrivate(err)
		if failed := asLoadError(err); failed != nil && !o.private {
			failed.stamp = l.stamp
			f.fail(l, failed)
		} else {
			f.release(l)
		}
		if errors.Is(err, ErrClosed) {
			o.validAt = always
		}
	}
	f.tellLoad(event, o)
	return o
}

// loadUnleased loads without a lease, since Redis failed, or returns that it did.
func (f *flight[T]) loadUnleased(token string, cause error) *outcome[T] {
	f.disown(token, cause)
	if f.ctx.Err() != nil {
		f.leave()
		return f.failed(context.Cause(f.ctx))
	}
	if f.opts.WhenRedisFails == ReturnError {
		f.leave()
		return f.failed(redisError(cause))
	}
	if e, err, ok := f.memory.recall(f.key); ok {
		f.leave()
		return &outcome[T]{entry: e, err: err, validAt: always}
	}
	down, epoch := f.isDown(), f.memory.now()
	o := &outcome[T]{validAt: f.seq.Add(1)}
	ctx, landed := f.begin()
	var r loaded[T]
	select {
	case r = <-landed:
	case <-ctx.Done():
		r = f.cut(ctx, landed)
	}
	if r.ruledOut {
		o.err = f.notFound
		return o
	}
	var lasts time.Duration
	o.entry, o.err = f.settle(r)
	switch o.private = f.isPrivate(o.err); {
	case o.private:
	case o.err == nil:
		if !o.entry.NoStore {
			lasts = min(f.lifetimes(o.entry).fresh, memoryTTL)
		}
	case errors.Is(o.err, ErrNotFound):
		lasts = min(f.policy.AbsentTTL, memoryTTL)
	default:
		lasts = min(f.opts.FailureBackoff, memoryTTL)
	}
	// Who arrived after the load began does not have its outcome: another process may still reach Redis, and may have had
	// a write acknowledged meanwhile. Such a caller goes round, and meets what is remembered: nothing while the server is
	// full, for then it refuses leases and acknowledges invalidations.
	down = down && f.isDown()
	if lasts > 0 && (down || !isTransport(cause) && !redis.IsOOMError(cause)) {
		now := time.Now()
		f.memory.remember(f.key, epoch, remembered[T]{entry: o.entry, err: o.err, begun: now.Add(-r.took), until: now.Add(lasts)})
	}
	f.tellLoad(LoadEvent{Key: f.key, Took: r.took, Outcome: NotStored}, o)
	return o
}

// isDown reports whether the key's node does not answer.
func (f *flight[T]) isDown() bool {
	n, err := f.nodes.of(f.ctx, f.names.Value)
	if err != nil {
		n = f.nodes.single
	}
	return n.isOpen.Load()
}

func (f *flight[T]) tellLoad(e LoadEvent, o *outcome[T]) {
	e.Err = o.err
	if o.err != nil && !errors.Is(o.err, ErrNotFound) {
		f.stats.loadErrors.Add(1)
	}
	if e.Outcome == Rejected {
		f.stats.rejected.Add(1)
	}
	if f.opts.Observer.Load != nil {
		f.opts.Observer.Load(e)
	}
}

// hold runs the loader and renews the lease meanwhile. A lease that is lost does not end the load: under frequent
// invalidations nobody would get a value. The commit decides.
func (f *flight[T]) hold(l lease) loaded[T] {
	ctx, landed := f.begin()
	every := f.opts.LeaseTTL / 3
	timer := time.NewTimer(every)
	defer timer.Stop()
	renewed := make(chan script.Result, 1) // Status Unknown: the renewal failed
	renewing, lost := false, false
	// No renewal may be sent after the commit.
	defer func() {
		if renewing {
			<-renewed
		}
	}()
	for {
		select {
		case r := <-landed:
			return r
		case <-ctx.Done():
			return f.cut(ctx, landed)
		case <-f.wakes:
			timer.Reset(0) // somebody has changed the key: is the lease still there?
		case <-timer.C:
			if !renewing && !lost {
				renewing = f.calls.run(func() { renewed <- f.renew(l) })
			}
		case r := <-renewed:
			renewing = false
			switch r.Status {
			case script.Held:
				timer.Reset(every)
			case script.Lost:
				lost = true // and never taken again
				f.lose()
			default:
				timer.Reset(every / 8)
			}
		}
	}
}

const renewalFailed script.Status = -1

func (f *flight[T]) renew(l lease) script.Result {
	n, err := f.nodes.of(context.Background(), f.names.Lease)
	if err != nil {
		return script.Result{Status: renewalFailed}
	}
	r, err := step(context.Background(), n, "renew", func(ctx context.Context, r script.Runner) (script.Result, error) {
		return script.Renew(ctx, r, f.names.Lease, l.token, f.opts.LeaseTTL)
	})
	if err != nil {
		r.Status = renewalFailed
	}
	return r
}

// begin asks the Guard and runs the loader, on a goroutine of its own, which gives the permit back when the loader has
// returned: one that ignores its context keeps its place. The context ends with the loader, at LoadTimeout, and on Close.
func (f *flight[T]) begin() (context.Context, <-chan loaded[T]) {
	mark := &loading{core: f.core, key: f.key, outer: loadingIn(f.caller)}
	ctx := context.WithValue(context.WithoutCancel(f.caller), loadingKey{}, mark)
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, expire := context.WithTimeoutCause(ctx, f.opts.LoadTimeout, ErrLoadTimeout)
	unhook := context.AfterFunc(f.ctx, func() { cancel(ErrClosed) })
	old := f.saw.old()
	landed := make(chan loaded[T], 1)
	f.stats.loading.Add(1)
	begun := time.Now()
	end := func(r loaded[T]) {
		mark.ended.Store(true)
		f.stats.loading.Add(-1)
		f.leave()
		r.took = time.Since(begun)
		landed <- r
		unhook()
		expire()
		cancel(nil)
	}
	started := f.work.run(func() {
		var r loaded[T]
		returned := false
		defer func() {
			if !returned {
				r = loaded[T]{}
				if v := recover(); v != nil {
					r.err = &PanicError{Value: v, Stack: debug.Stack()}
				} else {
					r.err = &PanicError{Value: "runtime.Goexit", Stack: debug.Stack()}
				}
			}
			end(r)
		}()
		if f.guard && f.rulesOut(ctx, f.key) {
			r.ruledOut = true
		} else if r.err = context.Cause(ctx); r.err == nil {
			f.stats.loads.Add(1)
			r.entry, r.err = f.load.load(ctx, old)
		}
		returned = true
	})
	if !started {
		end(loaded[T]{err: ErrClosed})
	}
	return ctx, landed
}

// cut takes the result of a loader whose context has ended: its own, if it returned at that moment.
func (f *flight[T]) cut(ctx context.Context, landed <-chan loaded[T]) loaded[T] {
	select {
	case r := <-landed:
		return r
	default:
		return loaded[T]{err: context.Cause(ctx), took: f.opts.LoadTimeout}
	}
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

func (f *flight[T]) lifetimes(e Entry[T]) lifetimes {
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

// commit stores what was loaded. sent is the number of the commit when the value is stored; otherwise zero.
func (f *flight[T]) commit(l lease, r loaded[T], e Entry[T]) (sent uint64, outcome Outcome, err error) {
	if f.saw.state == newer {
		f.release(l) // what a newer version wrote is not ours to overwrite
		return 0, NotStored, nil
	}
	life := f.lifetimes(e)
	h := l.headFor(life, kindValue, r.took)
	if errors.Is(r.err, ErrNotModified) {
		status, number := f.finish("touch", func(ctx context.Context, r script.Runner) (script.Result, error) {
			return script.Touch(ctx, r, f.names, l.token, l.stamp, h.append(nil), life.total(), f.channel, headOf(f.saw.raw))
		})
		if status != script.Missing {
			return f.judgeCommit(l, status, number)
		}
	}
	entry, err := f.format.encode(h, e.ETag, e.Value)
	if err != nil {
		failed := &LoadError{Err: err, stamp: l.stamp}
		f.fail(l, failed)
		return 0, NotStored, failed
	}
	status, number := f.finish("commit", func(ctx context.Context, r script.Runner) (script.Result, error) {
		return script.Commit(ctx, r, f.names, l.token, l.stamp, entry, life.total(), f.channel)
	})
	return f.judgeCommit(l, status, number)
}

// commitAbsent stores that the key does not exist, or removes what is stored when that is not to be remembered.
func (f *flight[T]) commitAbsent(l lease, r loaded[T]) (sent uint64, outcome Outcome) {
	if f.saw.state == newer {
		f.release(l)
		return 0, NotStored
	}
	var status script.Status
	if f.policy.AbsentTTL < 0 {
		status, sent = f.finish("drop", func(ctx context.Context, r script.Runner) (script.Result, error) {
			return script.Drop(ctx, r, f.names, l.token, l.stamp, f.channel)
		})
	} else {
		life := lifetimes{fresh: jittered(f.policy.AbsentTTL, max(f.policy.Jitter, 0), rand.Float64())}
		entry := encodeAbsent(l.headFor(life, kindAbsent, r.took))
		status, sent = f.finish("commit", func(ctx context.Context, r script.Runner) (script.Result, error) {
			return script.Commit(ctx, r, f.names, l.token, l.stamp, entry, life.total(), f.channel)
		})
	}
	sent, outcome, _ = f.judgeCommit(l, status, sent)
	return sent, outcome
}

// finish sends the step that ends a lease, with its number. It has a context of its own: no caller's end, and no Close,
// keeps a lease from being given back.
func (f *flight[T]) finish(op string, run func(context.Context, script.Runner) (script.Result, error)) (script.Status, uint64) {
	n, err := f.nodes.of(context.Background(), f.names.Lease)
	if err != nil {
		return unanswered, 0
	}
	number := f.seq.Add(1)
	r, err := step(context.Background(), n, op, run)
	if err != nil {
		return unanswered, 0
	}
	return r.Status, number
}

// unanswered stands for the status of a step that got no answer, or was refused.
const unanswered script.Status = -1

func (f *flight[T]) judgeCommit(l lease, status script.Status, number uint64) (uint64, Outcome, error) {
	switch status {
	case script.Stored, script.Already:
		return number, Stored, nil
	case unanswered:
		f.calls.run(func() { f.release(l) }) // if it was refused, others must not wait for the lease to expire
		return 0, Unknown, nil
	}
	return 0, Rejected, nil
}

// fail gives the lease back and keeps the fleet off the key for FailureBackoff. Those who wait get the failure even
// without a backoff, so it is kept for a second.
func (f *flight[T]) fail(l lease, failed *LoadError) {
	backoff := max(f.opts.FailureBackoff, 0)
	until := int64(0)
	if backoff > 0 {
		until = l.serverTime() + backoff.Microseconds()
	}
	message := failed.Err.Error()
	message = message[:min(len(message), maxMessage)]
	f.finish("fail", func(ctx context.Context, r script.Runner) (script.Result, error) {
		return script.Fail(ctx, r, f.names, l.token, l.stamp, until, message, max(backoff, time.Second), f.channel)
	})
}

// maxMessage bounds the text of a failure in Redis.
const maxMessage = 1024

// release gives the lease back.
func (f *flight[T]) release(l lease) {
	f.finish("release", func(ctx context.Context, r script.Runner) (script.Result, error) {
		return script.Release(ctx, r, f.names, l.token, f.channel)
	})
}

// disown gives a lease back that an unanswered acquire may have been granted, in the background.
func (f *flight[T]) disown(token string, cause error) {
	if isTransport(cause) && !errors.As(cause, new(errOpen)) {
		f.calls.run(func() { f.release(lease{token: token}) })
	}
}
