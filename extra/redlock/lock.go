package redlock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockade-cache/stockade"
)

// Lock is a lock that was taken. Until [Lock.Unlock] a watchdog renews it. Safe for concurrent use.
type Lock struct {
	locker *Locker
	claim  *claim
	values context.Context // of the caller, for what is sent to the servers; never ends
	ctx    context.Context // see Context
	cancel context.CancelCauseFunc
	since  time.Time              // when it was taken
	span   func(stockade.SpanEnd) // ends that of being held

	over     chan struct{} // closed when the lock is lost or about to be released
	extended chan struct{} // of capacity one: Extend changed ttl
	watched  chan struct{} // closed when the watchdog has stopped

	once   sync.Once     // of release
	freed  chan struct{} // closed when a majority has answered the release, or was asked in vain
	answer error         // of Unlock; set before freed is closed

	mu    sync.Mutex
	until time.Time     // guarded by mu: the end of the local validity
	ttl   time.Duration // guarded by mu: what the watchdog renews to
	ended bool          // guarded by mu: lost or released
	why   error         // guarded by mu: why it ended without its holder's wish
}

// hold begins the life of a lock that was granted. The call that it is in keeps Close from closing the tasks.
func (l *Locker) hold(parent context.Context, c *claim, until time.Time) *Lock {
	k := &Lock{
		locker: l, claim: c, values: context.WithoutCancel(parent), since: time.Now(), until: until, ttl: l.opts.TTL,
		over: make(chan struct{}), extended: make(chan struct{}, 1),
		watched: make(chan struct{}), freed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(parent)
	ctx, k.span = l.opts.Observer.Trace(ctx, stockade.SpanBegin{Span: stockade.SpanLockHold, Keys: []string{c.name}})
	k.ctx, k.cancel = lockContext{ctx, k}, cancel
	k.tell(stockade.LockTaken, nil) // before anybody can find that it is lost
	l.mu.Lock()
	l.held[k] = struct{}{}
	l.mu.Unlock()
	l.work.Run(k.watch)
	return k
}

// Context returns the context of the work that the lock protects. It has the values of the context that was given to
// Lock, and ends when the lock is lost, with the cause [stockade.ErrLockLost], or released. It ends before the lock can
// expire on a majority of the servers, whether or not any of them answers. After a stop of the whole process its Err
// knows at once that the lock has expired; contexts derived from it, and its Done channel, know as soon as a goroutine
// of this process has run.
func (k *Lock) Context() context.Context { return k.ctx }

// Token returns what tells this grant from all others, in hexadecimal digits. It is no fence: tokens do not grow. What
// the servers have differs from it in the last two digits.
func (k *Lock) Token() string { return hex.EncodeToString([]byte(k.claim.token)) }

// Name returns the name that was locked.
func (k *Lock) Name() string { return k.claim.name }

// Extend makes the lock last for ttl from now on, and the watchdog renew it to that. It never shortens what was
// promised before. The error Is [stockade.ErrLockLost] when the lock is not held any more, ctx's cause, or
// [stockade.ErrRedis] when no majority answered.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if k == nil {
		return errNoLock
	}
	if ttl < minTTL {
		return configError("ttl", ttl, "want at least "+minTTL.String())
	}
	if lost := k.check(); lost != nil {
		return lost
	}
	err := k.renew(ctx, ttl)
	if lost := k.check(); lost != nil {
		return lost
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.ttl = ttl
	k.mu.Unlock()
	select {
	case k.extended <- struct{}{}:
	default:
	}
	return nil
}

// Unlock ends the lock's context and releases the lock on all servers. The error Is [stockade.ErrLockLost] when it was
// not held any more; then nothing of another holder's is touched. A second Unlock returns what the first one did.
//
// The release is sent whatever becomes of ctx, which only bounds the wait for its answer; with a ctx that has ended
// already Unlock waits for up to RedisTimeout. When no majority answers, the error Is [stockade.ErrRedis], and the lock
// expires by itself.
func (k *Lock) Unlock(ctx context.Context) error {
	if k == nil {
		return errNoLock
	}
	_ = k.check() // after a stop of the process the watchdog may not have seen that the lock has expired
	k.release(context.WithoutCancel(ctx), nil)
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), k.locker.opts.RedisTimeout, context.Cause(ctx))
		defer cancel()
	}
	select {
	case <-k.freed:
		return k.answer
	case <-ctx.Done():
	}
	select {
	case <-k.freed:
		return k.answer
	default:
		return fmt.Errorf("%w: unlock: %w", stockade.ErrRedis, context.Cause(ctx))
	}
}

// release ends the lock, once, and begins to free it. why is nil when its holder asked for it.
func (k *Lock) release(ctx context.Context, why error) {
	k.once.Do(func() {
		k.end(why)
		if !k.locker.work.Run(func() { k.free(ctx) }) {
			// Close has released all that was held: this one was lost before.
			k.answer = k.check()
			close(k.freed)
		}
	})
}

// free releases the lock on the servers. That is also done for one whose validity has passed here, because they may
// have it still; another's is safe, since the step compares the token.
func (k *Lock) free(ctx context.Context) {
	defer close(k.freed)
	<-k.watched // no renewal is sent after the release
	err := k.claim.release(ctx)
	k.forget()
	k.mu.Lock()
	why := k.why
	k.mu.Unlock()
	k.answer = err
	if why != nil {
		k.answer = why
	}
	switch {
	case why == stockade.ErrLockLost: // and the Observer knows
	case errors.Is(err, stockade.ErrLockLost):
		k.tell(stockade.LockLost, nil)
	default:
		k.tell(stockade.LockReleased, err)
	}
}

// watch renews the lock every third of its ttl, and sooner after a failure, until it is over. It ends the context at
// the end of the local validity, and so waits for no renewal longer than that.
func (k *Lock) watch() {
	defer close(k.watched)
	var err error
	due := time.NewTimer(k.pause(err))
	defer due.Stop()
	for {
		select {
		case <-k.over:
			return
		case <-k.extended:
			err = nil
		case <-due.C:
			if k.check() != nil {
				return
			}
			k.mu.Lock()
			ttl := k.ttl
			k.mu.Unlock()
			err = k.renew(k.values, ttl) // also while Do's fn cleans up after the end of its context
			if k.check() != nil {
				return
			}
		}
		due.Reset(k.pause(err))
	}
}

// pause is the time until the watchdog has something to do, after a renewal that ended with err.
func (k *Lock) pause(err error) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.ttl / 3
	if err != nil {
		next = min(k.locker.opts.RedisTimeout, k.ttl/4) / 2
	}
	return min(next, time.Until(k.until))
}

// renew asks the servers for another ttl, and waits no longer than the lock is valid.
func (k *Lock) renew(ctx context.Context, ttl time.Duration) error {
	k.mu.Lock()
	until := k.until
	k.mu.Unlock()
	valid, cancel := context.WithDeadlineCause(ctx, until, stockade.ErrLockLost)
	defer cancel()
	later, err := k.claim.renew(valid, ttl)
	switch {
	case err == nil:
		k.prolong(later)
	case err == stockade.ErrLockLost:
		k.lose()
	}
	return err
}

// prolong moves the end of the local validity. Renewals may answer out of order: none takes back what another gave.
func (k *Lock) prolong(until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if until.After(k.until) {
		k.until = until
	}
}

// check ends the lock when its validity has passed, and returns an error when it is not held any more.
func (k *Lock) check() error {
	k.mu.Lock()
	ended, why, passed := k.ended, k.why, !time.Now().Before(k.until)
	k.mu.Unlock()
	switch {
	case ended && why != nil:
		return why
	case ended:
		return stockade.ErrLockLost
	case passed:
		k.lose()
		return stockade.ErrLockLost
	default:
		return nil
	}
}

// lose ends a lock that no majority of the servers has any more, or may not have.
func (k *Lock) lose() {
	if k.end(stockade.ErrLockLost) {
		k.forget()
		k.tell(stockade.LockLost, nil)
	}
}

// end ends the lock and its context, for a reason or (nil) at its holder's wish. It reports whether it was the first to.
func (k *Lock) end(why error) bool {
	k.mu.Lock()
	first := !k.ended
	if first {
		k.ended, k.why = true, why
	}
	why = k.why
	k.mu.Unlock()
	k.cancel(why) // by whoever comes second too, who must not see a context that the first has yet to end
	if first {
		close(k.over)
	}
	return first
}

// forget takes the lock from those that Close releases.
func (k *Lock) forget() {
	l := k.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, k)
}

func (k *Lock) tell(kind stockade.LockKind, err error) {
	switch kind {
	case stockade.LockReleased:
		k.span(stockade.SpanEnd{Err: err})
	case stockade.LockLost:
		k.span(stockade.SpanEnd{Err: stockade.ErrLockLost})
	}
	k.locker.opts.Observer.Lock(stockade.LockEvent{Name: k.claim.name, Kind: kind, Held: time.Since(k.since), Err: err})
}

// lockContext is the context of a lock. Its Err looks at the time itself: in a process that is continued after a stop
// the work may run before any timer does. Done and Value are those of the cancel context inside, so that contexts are
// derived from it without a goroutine for each.
type lockContext struct {
	context.Context
	lock *Lock
}

func (c lockContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.lock.check() != nil {
		c.lock.end(stockade.ErrLockLost)
	}
	return c.Context.Err()
}
