package redlock

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/held"
)

// Lock is a lock that was taken. Until [Lock.Unlock] a watchdog renews it. Safe for concurrent use.
type Lock struct {
	locker *Locker
	claim  *claim
	held   *held.Lock
	since  time.Time              // when it was taken
	span   func(stockade.SpanEnd) // ends that of being held
}

// hold begins the life of a lock that was granted.
func (l *Locker) hold(parent context.Context, c *claim, until time.Time) *Lock {
	k := &Lock{locker: l, claim: c, since: time.Now()}
	k.held = l.locks.New(parent, l.opts.TTL, held.Grant{Renew: k.renew, Free: k.free, Lost: func() { k.tell(stockade.LockLost, nil) }})
	k.held.Prolong(until)
	ctx, end := l.opts.Observer.Trace(k.held.Context(), stockade.SpanBegin{Span: stockade.SpanLockHold, Keys: []string{c.name}})
	k.span = end
	k.tell(stockade.LockTaken, nil) // before anybody can find that it is lost
	k.held.Hold(ctx)
	return k
}

// Context returns the context of the work that the lock protects. It has the values of the context that was given to
// Lock, and ends when the lock is lost, with the cause [stockade.ErrLockLost], or released. It ends before the lock can
// expire on a majority of the servers, whether or not any of them answers. After a stop of the whole process its Err
// knows at once that the lock has expired; contexts derived from it, and its Done channel, know as soon as a goroutine
// of this process has run.
func (k *Lock) Context() context.Context { return k.held.Context() }

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
	return k.held.Extend(ctx, ttl)
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
	return k.held.Unlock(ctx)
}

// free releases the lock on the servers, also one whose validity has passed here: another's is safe, since the step
// compares the token.
func (k *Lock) free(ctx context.Context, why error) error {
	err := k.claim.release(ctx)
	switch {
	case why == stockade.ErrLockLost: // and the Observer knows
	case errors.Is(err, stockade.ErrLockLost):
		k.tell(stockade.LockLost, nil)
	default:
		k.tell(stockade.LockReleased, err)
	}
	return cmp.Or(why, err)
}

// renew asks the servers for another ttl, and waits no longer than the lock is valid.
func (k *Lock) renew(ctx context.Context, ttl time.Duration) error {
	valid, cancel := context.WithDeadlineCause(ctx, k.held.Until(), stockade.ErrLockLost)
	defer cancel()
	later, err := k.claim.renew(valid, ttl)
	switch {
	case err == nil:
		k.held.Prolong(later)
	case err == stockade.ErrLockLost:
		k.held.Lose()
	}
	return err
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
