package stockade

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/internal/script"
)

// Lock is a lock that was taken. Until [Lock.Unlock] a watchdog renews it. Safe for concurrent use.
type Lock struct {
	locker *Locker
	name   string
	keys   lockKeys
	token  string
	values context.Context // of the caller, for what is sent to Redis; never ends
	ctx    context.Context // see Context
	cancel context.CancelCauseFunc

	// Written by the call that takes the lock, before it returns.
	fence      int64
	taken      time.Time
	unanswered bool // Redis may have granted the lock without our knowing

	over     chan struct{} // closed when the lock is lost or about to be released
	extended chan struct{} // of capacity one: Extend changed ttl
	watched  chan struct{} // closed when the watchdog has stopped
	span     traced        // of being held

	once   sync.Once     // of release
	freed  chan struct{} // closed when Redis has answered the release, or was asked in vain
	answer error         // of Unlock; set before freed is closed

	mu    sync.Mutex
	until time.Time     // guarded by mu: the end of the local validity
	ttl   time.Duration // guarded by mu: what the watchdog renews to
	ended bool          // guarded by mu: lost, released or given up
	why   error         // guarded by mu: why it ended without its holder's wish
}

// lockKeys are the names in Redis of one lock.
type lockKeys struct{ lock, fences string }

// newLock returns a lock that is not taken yet, under a new token.
func (l *Locker) newLock(parent context.Context, name string) *Lock {
	k := &Lock{
		locker: l, name: name, token: newToken(), ttl: l.opts.TTL,
		keys:   lockKeys{keyName(l.opts.Prefix, 'm', name), keyName(l.opts.Prefix, 'n', name)},
		values: context.WithoutCancel(parent),
		over:   make(chan struct{}), extended: make(chan struct{}, 1),
		watched: make(chan struct{}), freed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(parent)
	k.ctx, k.cancel = ctx, cancel // until hold
	return k
}

// validity is how long a lock counts as held after the request that took or renewed it was sent: until before it can
// expire on the server, whose clock may run faster than ours (1 %) and counts in ms, and late enough for a timer
// that fires late (2 ms).
func validity(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// granted notes an answer to a request sent then. It reports false when the answer came too late to be of use.
//
// The request may have found the lock granted to an earlier copy of itself. It has armed the expiry anew then: the
// server keeps the lock for at least a TTL from when it was sent.
func (k *Lock) granted(sent time.Time, fence int64) bool {
	k.fence, k.taken = fence, sent
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until = sent.Add(validity(k.ttl))
	return time.Now().Before(k.until)
}

// giveUp forgets a lock that was not granted as far as is known. What Redis may have granted is released in the
// background, so that it does not bar others until it expires.
func (k *Lock) giveUp() {
	k.end(nil)
	if k.unanswered {
		k.locker.work.Run(k.disown)
	}
}

// answered is told what became of a request to take the lock, also when nobody waits for it any more. While the lock is
// held or still asked for, what the request took is ours.
func (k *Lock) answered(t script.Taken, err error) {
	k.mu.Lock()
	ended := k.ended
	k.mu.Unlock()
	if ended && (err != nil || t.Status == script.Granted) {
		k.disown()
	}
}

// disown releases what nobody holds. It runs on a goroutine of the Locker's tasks, also while Close waits for them.
func (k *Lock) disown() {
	ctx, cancel := context.WithTimeout(k.values, k.locker.opts.RedisTimeout)
	defer cancel()
	_, _ = script.Unlock(ctx, k.locker.rdb, k.keys.lock, k.keys.fences, k.token, k.locker.channel) // or it expires
}

// hold begins the life of a lock that was granted. The call that it is in keeps Close from closing the tasks.
func (k *Lock) hold() {
	l := k.locker
	k.span = l.opts.Observer.begin(k.ctx, SpanBegin{Span: SpanLockHold, Keys: []string{k.name}})
	k.ctx = lockContext{k.span.ctx, k} // asks for the lock from here on: nobody hears that it was lost before it was taken
	k.tell(LockTaken, nil)
	l.mu.Lock()
	l.held[k] = struct{}{}
	l.mu.Unlock()
	l.work.Run(k.watch)
}

// Context returns the context of the work that the lock protects. It has the values of the context that was given to
// Lock, and ends when the lock is lost, with the cause [ErrLockLost], or released. It ends before the lock expires in
// Redis, whether or not Redis answers. After a stop of the whole process its Err knows at once that the lock has
// expired; contexts derived from it, and its Done channel, know as soon as a goroutine of this process has run.
func (k *Lock) Context() context.Context { return k.ctx }

// Fence returns a number that grows with every grant of the name. A resource that refuses a lower one than it has seen
// is safe from a holder that does not know yet that it lost the lock.
func (k *Lock) Fence() int64 { return k.fence }

// Token returns what tells this grant from all others, in hexadecimal digits.
func (k *Lock) Token() string { return hex.EncodeToString([]byte(k.token)) }

// Name returns the name that was locked.
func (k *Lock) Name() string { return k.name }

// Extend makes the lock last for ttl from now on, and the watchdog renew it to that. It never shortens what was
// promised before. The error Is [ErrLockLost] when the lock is not held any more, ctx's cause, or [ErrRedis].
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if k == nil {
		return errNoLock
	}
	if ttl < minLockTTL {
		return configError("ttl", ttl, "want at least "+minLockTTL.String())
	}
	if lost := k.check(); lost != nil {
		return lost
	}
	err := k.renew(ctx, ttl)
	if lost := k.check(); lost != nil {
		return lost
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return endedError(ctx)
	default:
		return redisError(err)
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

var errNoLock = errors.New("stockade: the *Lock is nil: it was not taken")

// Unlock ends the lock's context and releases the lock. The error Is [ErrLockLost] when it was not held any more;
// then nothing of another holder's is touched. A second Unlock returns what the first one did.
//
// The release is sent whatever becomes of ctx, which only bounds the wait for its answer; with a ctx that has ended
// already Unlock waits for up to RedisTimeout. When Redis does not answer, the error Is [ErrRedis], and the lock
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
		return fmt.Errorf("%w: unlock: %w", ErrRedis, context.Cause(ctx))
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

// free releases the lock in Redis. That is also done for one whose validity has passed here, because Redis may have
// it still; another's is safe, since the step compares the token.
func (k *Lock) free(ctx context.Context) {
	defer close(k.freed)
	<-k.watched // no renewal is sent after the release
	released, err := k.locker.unlock(ctx, k)
	l := k.locker
	l.mu.Lock()
	delete(l.held, k)
	l.mu.Unlock()
	k.mu.Lock()
	why := k.why
	k.mu.Unlock()
	if why == ErrLockLost {
		k.answer = why // and the Observer knows
		return
	}
	switch {
	case err != nil:
		k.answer = redisError(err)
		k.tell(LockReleased, err)
	case released:
		k.tell(LockReleased, nil)
	default:
		k.answer = ErrLockLost
		k.tell(LockLost, nil)
	}
	if why != nil {
		k.answer = why
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
			err = k.renew(k.values, ttl)
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
		next = k.budget(k.ttl) / 2
	}
	return min(next, time.Until(k.until))
}

// budget is how long a renewal to ttl may take, so that it can be repeated.
func (k *Lock) budget(ttl time.Duration) time.Duration {
	return min(k.locker.opts.RedisTimeout, ttl/4)
}

// renew asks Redis for another ttl.
func (k *Lock) renew(ctx context.Context, ttl time.Duration) error {
	k.mu.Lock()
	budget := min(k.budget(ttl), time.Until(k.until))
	k.mu.Unlock()
	l := k.locker
	_, err := ask(ctx, l, k, "renew", budget, func(ctx context.Context, _ *node) (script.Result, error) {
		sent := time.Now()
		r, err := script.Do(ctx, l.rdb, script.Renew(k.keys.lock, k.token, ttl))
		// Learn here, where an answer that comes late is heard too.
		switch {
		case err != nil:
		case r.Status == script.Held:
			k.prolong(sent.Add(validity(ttl)))
		default:
			k.lose()
		}
		return r, err
	})
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
		return ErrLockLost
	case passed:
		k.lose()
		return ErrLockLost
	default:
		return nil
	}
}

// lose ends a lock that Redis does not have any more, or may not have.
func (k *Lock) lose() {
	if !k.end(ErrLockLost) {
		return
	}
	l := k.locker
	l.mu.Lock()
	delete(l.held, k)
	l.mu.Unlock()
	k.tell(LockLost, nil)
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

func (k *Lock) tell(kind LockKind, err error) {
	switch kind {
	case LockReleased:
		k.span.end(SpanEnd{Err: err})
	case LockLost:
		k.span.end(SpanEnd{Err: ErrLockLost})
	}
	tell(k.locker.opts.Observer.Lock, LockEvent{Name: k.name, Kind: kind, Fence: k.fence, Held: time.Since(k.taken), Err: err})
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
		c.lock.end(ErrLockLost)
	}
	return c.Context.Err()
}
