package stockade

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/stockade-cache/stockade/internal/held"
	"github.com/stockade-cache/stockade/internal/script"
)

// Lock is a lock that was taken. Until [Lock.Unlock] a watchdog renews it. Safe for concurrent use.
type Lock struct {
	locker *Locker
	name   string
	keys   lockKeys
	token  string
	values context.Context // of the caller, for what is sent to Redis; never ends
	held   *held.Lock

	// Written by the call that takes the lock, before it returns.
	fence      int64
	taken      time.Time
	unanswered bool // Redis may have granted the lock without our knowing

	span traced // of being held
}

// lockKeys are the names in Redis of one lock.
type lockKeys struct{ lock, fences string }

// newLock returns a lock that is not taken yet, under a new token.
func (l *Locker) newLock(parent context.Context, name string) *Lock {
	k := &Lock{
		locker: l, name: name, token: newToken(), values: context.WithoutCancel(parent),
		keys: lockKeys{keyName(l.opts.Prefix, 'm', name), keyName(l.opts.Prefix, 'n', name)},
	}
	k.held = l.locks.New(parent, l.opts.TTL, held.Grant{Renew: k.renew, Free: k.free, Lost: func() { k.tell(LockLost, nil) }})
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
	until := sent.Add(validity(k.locker.opts.TTL))
	k.held.Prolong(until)
	return time.Now().Before(until)
}

// giveUp forgets a lock that was not granted as far as is known. What Redis may have granted is released in the
// background, so that it does not bar others until it expires.
func (k *Lock) giveUp() {
	k.held.GiveUp()
	if k.unanswered {
		k.locker.work.Run(k.disown)
	}
}

// answered is told what became of a request to take the lock, also when nobody waits for it any more. While the lock is
// held or still asked for, what the request took is ours.
func (k *Lock) answered(t script.Taken, err error) {
	if k.held.Ended() && (err != nil || t.Status == script.Granted) {
		k.disown()
	}
}

// disown releases what nobody holds. It runs on a goroutine of the Locker's tasks, also while Close waits for them.
func (k *Lock) disown() {
	ctx, cancel := context.WithTimeout(k.values, k.locker.opts.RedisTimeout)
	defer cancel()
	_, _ = script.Unlock(ctx, k.locker.rdb, k.keys.lock, k.keys.fences, k.token, k.locker.channel) // or it expires
}

// hold begins the life of a lock that was granted.
func (k *Lock) hold() {
	k.span = k.locker.opts.Observer.begin(k.held.Context(), SpanBegin{Span: SpanLockHold, Keys: []string{k.name}})
	k.tell(LockTaken, nil) // before anybody can find that it is lost
	k.held.Hold(k.span.ctx)
}

// Context returns the context of the work that the lock protects. It has the values of the context that was given to
// Lock, and ends when the lock is lost, with the cause [ErrLockLost], or released. It ends before the lock expires in
// Redis, whether or not Redis answers. After a stop of the whole process its Err knows at once that the lock has
// expired; contexts derived from it, and its Done channel, know as soon as a goroutine of this process has run.
func (k *Lock) Context() context.Context { return k.held.Context() }

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
	switch err := k.held.Extend(ctx, ttl); {
	case err == nil || errors.Is(err, ErrLockLost):
		return err
	case ctx.Err() != nil:
		return endedError(ctx)
	default:
		return redisError(err)
	}
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
	return k.held.Unlock(ctx)
}

// free releases the lock in Redis, also one whose validity has passed here: another's is safe, since the step compares
// the token.
func (k *Lock) free(ctx context.Context, why error) error {
	released, err := k.locker.unlock(ctx, k)
	var answer error
	switch {
	case why == ErrLockLost: // and the Observer knows
	case err != nil:
		answer = redisError(err)
		k.tell(LockReleased, err)
	case released:
		k.tell(LockReleased, nil)
	default:
		answer = ErrLockLost
		k.tell(LockLost, nil)
	}
	return cmp.Or(why, answer)
}

// renew asks Redis for another ttl, and waits no longer than the lock is valid.
func (k *Lock) renew(ctx context.Context, ttl time.Duration) error {
	l := k.locker
	budget := min(l.locks.Budget(ttl), time.Until(k.held.Until()))
	_, err := ask(ctx, l, k, "renew", budget, func(ctx context.Context, _ *node) (script.Result, error) {
		sent := time.Now()
		r, err := script.Do(ctx, l.rdb, script.Renew(k.keys.lock, k.token, ttl))
		// Learn here, where an answer that comes late is heard too.
		switch {
		case err != nil:
		case r.Status == script.Held:
			k.held.Prolong(sent.Add(validity(ttl)))
		default:
			k.held.Lose()
		}
		return r, err
	})
	return err
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
