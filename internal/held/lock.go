// Package held is the life of a lock in the process that holds it, whoever grants it: a watchdog renews it, its context
// ends with it, and it ends once.
package held

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Lock is a lock that is asked for, and held from [Lock.Hold] on. Safe for concurrent use.
type Lock struct {
	locks  *Locks
	grant  Grant
	values context.Context // of the caller, for renewals; never ends
	ctx    context.Context // see Context
	cancel context.CancelCauseFunc

	over     chan struct{} // closed when the lock is lost or about to be released
	extended chan struct{} // of capacity one: Extend changed ttl
	watched  chan struct{} // closed when the watchdog has stopped

	once   sync.Once     // of Release
	freed  chan struct{} // closed when the release was answered, or asked for in vain
	answer error         // of Unlock; set before freed is closed

	mu    sync.Mutex
	until time.Time     // guarded by mu: the end of the local validity
	ttl   time.Duration // guarded by mu: what the watchdog renews to
	ended bool          // guarded by mu: lost, released or given up
	why   error         // guarded by mu: why it ended without its holder's wish
}

// Grant is what one lock is to those who grant it.
type Grant struct {
	// Renew asks for another ttl, and says by Prolong and Lose what it learns.
	Renew func(ctx context.Context, ttl time.Duration) error
	// Free gives the lock back, also one that was lost, and returns what Unlock does. why is why the lock ended without
	// its holder's wish.
	Free func(ctx context.Context, why error) error
	// Lost is told that the lock was lost before it was released.
	Lost func()
}

// New returns a lock that is not held yet.
func (ls *Locks) New(parent context.Context, ttl time.Duration, g Grant) *Lock {
	k := &Lock{
		locks: ls, grant: g, values: context.WithoutCancel(parent), ttl: ttl,
		over: make(chan struct{}), extended: make(chan struct{}, 1),
		watched: make(chan struct{}), freed: make(chan struct{}),
	}
	k.ctx, k.cancel = context.WithCancelCause(parent)
	return k
}

// Hold begins the life of a lock that was granted, with a context that descends from its own. It is in a call that
// [Locks.Begin] has begun.
func (k *Lock) Hold(ctx context.Context) {
	k.ctx = lockContext{ctx, k}
	k.locks.add(k)
	k.locks.work.Run(k.watch)
}

// GiveUp ends a lock that was not granted as far as is known.
func (k *Lock) GiveUp() { k.end(nil) }

// Context is the lock's own: it ends when the lock is lost, with that as its cause, or released. After a stop of the
// process its Err knows at once that the lock has expired.
func (k *Lock) Context() context.Context { return k.ctx }

// Ended reports whether the lock was lost, released or given up.
func (k *Lock) Ended() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// Until returns the end of the local validity.
func (k *Lock) Until() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// Prolong moves the end of the local validity. Renewals may answer out of order: none takes back what another gave.
func (k *Lock) Prolong(until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if until.After(k.until) {
		k.until = until
	}
}

// Extend makes the lock last for ttl from now on, and the watchdog renew it to that. It returns what Renew does, or that
// the lock is not held any more.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if lost := k.Check(); lost != nil {
		return lost
	}
	err := k.grant.Renew(ctx, ttl)
	if lost := k.Check(); lost != nil {
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

// Unlock releases the lock, whatever becomes of ctx, which only bounds the wait for the answer; with a ctx that has ended
// already it waits for up to the time that one request has.
func (k *Lock) Unlock(ctx context.Context) error {
	_ = k.Check() // after a stop of the process the watchdog may not have seen that the lock has expired
	k.release(context.WithoutCancel(ctx), nil)
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), k.locks.timeout, context.Cause(ctx))
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
		return fmt.Errorf("%w: unlock: %w", k.locks.errs.Unanswered, context.Cause(ctx))
	}
}

// release ends the lock, once, and begins to free it. why is nil when its holder asked for it.
func (k *Lock) release(ctx context.Context, why error) {
	k.once.Do(func() {
		k.end(why)
		if !k.locks.work.Run(func() { k.free(ctx) }) {
			// Close has released all that was held: this one was lost before.
			k.answer = k.Check()
			close(k.freed)
		}
	})
}

// free gives the lock back. That is also done for one whose validity has passed here, because it may be there still.
func (k *Lock) free(ctx context.Context) {
	defer close(k.freed)
	<-k.watched // no renewal is sent after the release
	k.mu.Lock()
	why := k.why
	k.mu.Unlock()
	k.answer = k.grant.Free(ctx, why)
	k.locks.forget(k)
}

// watch renews the lock every third of its ttl, and sooner after a failure, until it is over. It ends the context at
// the end of the local validity: Renew waits no longer than that.
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
			if k.Check() != nil {
				return
			}
			k.mu.Lock()
			ttl := k.ttl
			k.mu.Unlock()
			err = k.grant.Renew(k.values, ttl) // also while the holder cleans up after the end of its own context
			if k.Check() != nil {
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
		next = k.locks.Budget(k.ttl) / 2
	}
	return min(next, time.Until(k.until))
}

// Check ends the lock when its validity has passed, and returns an error when it is not held any more.
func (k *Lock) Check() error {
	k.mu.Lock()
	ended, why, passed := k.ended, k.why, !time.Now().Before(k.until)
	k.mu.Unlock()
	switch {
	case ended && why != nil:
		return why
	case ended:
		return k.locks.errs.Lost
	case passed:
		k.Lose()
		return k.locks.errs.Lost
	default:
		return nil
	}
}

// Lose ends a lock that its granters do not have any more, or may not have.
func (k *Lock) Lose() {
	if k.end(k.locks.errs.Lost) {
		k.locks.forget(k)
		k.grant.Lost()
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
	if c.lock.Check() != nil {
		c.lock.end(c.lock.locks.errs.Lost)
	}
	return c.Context.Err()
}
