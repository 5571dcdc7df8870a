package stockade

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/bus"
	"github.com/stockade-cache/stockade/internal/held"
	"github.com/stockade-cache/stockade/internal/script"
	"github.com/stockade-cache/stockade/internal/tasks"
)

const (
	defaultLockTTL = 10 * time.Second
	// minLockTTL leaves room for the margin of the local validity and for a renewal.
	minLockTTL = 10 * time.Millisecond
)

// LockOptions configure a [Locker]. Only Prefix is required.
type LockOptions struct {
	// Prefix is the namespace of the locks in Redis. It has no braces, and may be that of a Cache.
	Prefix string
	// TTL is how long a lock outlives a holder that died: a living one renews it every third of it. At least 10 ms;
	// zero means 10 s.
	TTL time.Duration
	// RedisTimeout is the budget of one request to Redis, whatever the client's own options are. At least 1 ms and at
	// most a quarter of TTL, so that a renewal can fail and be repeated; zero means 250 ms, or a quarter of a TTL
	// below 1 s.
	RedisTimeout time.Duration
	// Observer is told what happens.
	Observer Observer
}

// validate checks the options and fills in the defaults.
func (o *LockOptions) validate() error {
	if o.Prefix == "" || strings.ContainsAny(o.Prefix, "{}") {
		return configError("LockOptions.Prefix", fmt.Sprintf("%q", o.Prefix), "want a name without braces")
	}
	if o.TTL == 0 {
		o.TTL = defaultLockTTL
	}
	if o.TTL < minLockTTL {
		return configError("LockOptions.TTL", o.TTL, "want at least "+minLockTTL.String())
	}
	if o.RedisTimeout == 0 {
		o.RedisTimeout = min(defaultRedisTimeout, o.TTL/4)
	}
	if o.RedisTimeout < time.Millisecond || o.RedisTimeout > o.TTL/4 {
		return configError("LockOptions.RedisTimeout", o.RedisTimeout, fmt.Sprintf("want 1ms to %v, a quarter of TTL", o.TTL/4))
	}
	return nil
}

// Locker takes locks that exclude each other among all processes that share a Redis and a Prefix. Safe for
// concurrent use.
//
// A lock is a promise with a limit: a holder that is stopped, or cut off from Redis, for longer than TTL loses it, and
// a failover that loses acknowledged writes can lose it too. [Lock.Context] ends before another can hold the lock
// unless Redis loses it; for work that must not be done twice even then, let the resource refuse a [Lock.Fence] that
// is lower than one it has seen.
type Locker struct {
	rdb     redis.UniversalClient
	opts    LockOptions // with the defaults filled in
	channel string
	nodes   *nodes
	bus     *bus.Bus
	turns   tasks.Turns // of the callers that wait for a name: an unlock wakes one of them
	work    tasks.Group
	locks   *held.Locks
}

// NewLocker returns a Locker without any I/O. It refuses a [redis.Ring], which moves keys between shards on its own:
// there a lock would have two holders by design.
func NewLocker(rdb redis.UniversalClient, opts LockOptions) (*Locker, error) {
	if isNil(rdb) {
		return nil, configError("client", rdb, "a go-redis client is required")
	}
	if _, ok := rdb.(*redis.Ring); ok {
		return nil, configError("client", "a *redis.Ring", "keys must stay where they are")
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	l := &Locker{work: tasks.Group{Closed: ErrClosed}, rdb: rdb, opts: opts, channel: opts.Prefix + ":unlock"}
	l.nodes = newNodes(rdb, opts.RedisTimeout, &l.work, l.tellRedis, func() {})
	l.bus = bus.New(rdb, l.channel, bus.Events{})
	l.locks = held.NewLocks(&l.work, opts.RedisTimeout, held.Errors{Lost: ErrLockLost, Unanswered: ErrRedis, Closed: ErrClosed})
	return l, nil
}

// TryLock takes the lock of a name if it is free, and returns [ErrLocked] if it is not. Any other error but
// [ErrClosed] and ctx's cause Is [ErrRedis].
func (l *Locker) TryLock(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, context.WithoutCancel(ctx), name, l.try)
}

// Lock takes the lock of a name, and waits until ctx ends while another holds it or Redis does not answer. The error
// then Is [ErrLocked] and Is ctx's cause, and Is [ErrRedis] when Redis did not answer at last. What Redis refuses for
// good, a missing permission or a key of another type, is returned at once as [ErrRedis].
//
// Callers of one Locker get their turn in the order in which they came; among processes there is no order. A holder
// that locks the same name again waits for itself.
func (l *Locker) Lock(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, context.WithoutCancel(ctx), name, l.wait)
}

// Do calls fn while holding the lock of a name, waiting for it like [Locker.Lock]. The context that fn gets is ctx,
// and ends when the lock is lost. The lock is released when fn returns, panics or calls [runtime.Goexit]. The error
// is fn's, joined with [ErrLockLost] when the lock was lost before it was released.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, fence int64) error) (err error) {
	k, err := l.acquire(ctx, ctx, name, l.wait)
	if err != nil {
		return err
	}
	defer func() {
		// A release that Redis did not answer is not fn's failure, and is known to the Observer.
		if lost := k.Unlock(ctx); errors.Is(lost, ErrLockLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(k.Context(), k.Fence())
}

// Close ends all waiting calls, releases the locks that are held, and returns when every call to Redis has returned.
// The contexts of the locks end, and their Unlock returns an error, that Is both [ErrLockLost] and [ErrClosed].
func (l *Locker) Close() error {
	l.locks.Close(errLockClosed)
	l.bus.Close()
	l.nodes.close()
	l.work.Close()
	return nil
}

// errLockClosed is what a holder learns whose Locker is closed.
var errLockClosed = fmt.Errorf("%w: %w", ErrLockLost, ErrClosed)

// acquire takes a lock by way of try or wait. The lock's context descends from parent.
func (l *Locker) acquire(ctx, parent context.Context, name string, how func(context.Context, *Lock) error) (*Lock, error) {
	ctx, end, ok := l.locks.Begin(ctx)
	if !ok {
		return nil, ErrClosed
	}
	defer end()
	k := l.newLock(parent, name)
	if err := how(ctx, k); err != nil {
		k.giveUp()
		return nil, err
	}
	k.hold()
	return k, nil
}

// try asks once.
func (l *Locker) try(ctx context.Context, k *Lock) error {
	status, _, err := l.take(ctx, k, false)
	switch {
	case err == nil && status == script.Granted:
		return nil
	case err == nil:
		return ErrLocked
	case ctx.Err() != nil:
		return endedError(ctx)
	default:
		return redisError(err)
	}
}

// wait asks until the lock is granted or ctx ends. Between the questions it sleeps until an unlock is heard, the
// holder's lock must have expired, or the poll is due, which stands in for a message that was lost.
//
// All questions carry one token. Where nobody knows whether an earlier one was executed, because its reply was lost
// or a copy of it is still on its way, the lock that it took is this caller's too, and the next question is granted
// it with the same fence; under a new token it would be a stranger's, and the caller would wait for itself. No step
// that takes the token's lock away is sent before the caller has given up, so a grant stands whichever copy made it.
func (l *Locker) wait(ctx context.Context, k *Lock) (err error) {
	event := WaitEvent{Key: k.name}
	began := time.Now()
	waited := false
	var span traced
	waits := func() {
		if !waited {
			waited, span = true, l.opts.Observer.begin(ctx, SpanBegin{Span: SpanLockWait, Keys: []string{k.name}, Time: began})
		}
	}
	defer func() {
		if waited {
			event.Took, event.Err = time.Since(began), err
			span.end(SpanEnd{Err: err})
			tell(l.opts.Observer.Wait, event)
		}
	}()
	if l.turns.Enter(ctx, k.name, waits) != nil {
		return lockedError(ctx, nil)
	}
	defer l.turns.Leave(k.name)

	var (
		unlocked *bus.Waiter
		failure  error // of the last question, nil when it was answered
	)
	for attempt := 0; ; attempt++ {
		status, left, err := l.take(ctx, k, unlocked != nil)
		switch {
		case err == nil && status == script.Granted:
			return nil
		case ctx.Err() != nil:
			return lockedError(ctx, failure)
		case isRefusal(err):
			return redisError(err)
		}
		waits()
		failure = err
		if unlocked == nil {
			unlocked = l.bus.Wait(k.keys.lock)
			defer unlocked.Stop()
			if err == nil {
				continue // an unlock before this moment was not heard
			}
		}
		first := firstPoll
		if l.bus.Live() {
			first = firstAwokenPoll
		}
		pause := pollDelay(first, attempt, 0.5, rand.Float64())
		if err == nil {
			pause = min(pause, left+time.Millisecond)
		}
		poll := time.NewTimer(pause)
		select {
		case <-unlocked.C:
			event.Wakes++
		case <-poll.C:
			event.Polls++
		case <-ctx.Done():
		}
		poll.Stop()
		if ctx.Err() != nil {
			return lockedError(ctx, failure)
		}
	}
}

// errTooLate says that a request to take a lock reached Redis after the caller had given up on it.
var errTooLate = errors.New("the request reached Redis too late")

// take asks for the lock and notes a grant in k. waits marks the holder's lock, so that its unlock sends a message.
// left is how long a holder's lock lasts, unless it is renewed.
func (l *Locker) take(ctx context.Context, k *Lock, waits bool) (status script.Status, left time.Duration, err error) {
	for corrected := false; ; corrected = true {
		if ctx.Err() != nil {
			return 0, 0, contextError(ctx)
		}
		sent := time.Now()
		t, err := ask(ctx, l, k, "take", l.opts.RedisTimeout, func(ctx context.Context, n *node) (script.Taken, error) {
			// A request that arrives when nobody waits for its answer must not take the lock.
			deadline, _ := ctx.Deadline()
			notAfter := n.clock.after(time.Until(deadline))
			t, err := script.Take(ctx, l.rdb, k.keys.lock, k.keys.fences, k.token, l.opts.TTL, notAfter, waits)
			if err == nil && t.Status == script.TooLate {
				// The clock was unknown or wrong, and is right now, unless the request really was that slow.
				n.clock.correct(t.Time)
			}
			k.answered(t, err)
			return t, err
		})
		switch {
		case err != nil:
			k.unanswered = k.unanswered || ctx.Err() != nil || !isRefusal(err)
			return 0, 0, err
		case t.Status == script.TooLate && !corrected:
			continue
		case t.Status == script.TooLate:
			return 0, 0, errTooLate
		case t.Status == script.Granted && !k.granted(sent, t.Fence):
			k.unanswered = true
			return 0, 0, errTooLate
		}
		return t.Status, t.PTTL, nil
	}
}

// unlock releases the lock of k's token. It reports false when Redis did not have it any more.
func (l *Locker) unlock(ctx context.Context, k *Lock) (released bool, err error) {
	const tries = 3 // then the lock is left to its expiry
	var unanswered error
	for try := 1; ; try++ {
		r, err := ask(ctx, l, k, "unlock", l.opts.RedisTimeout, func(ctx context.Context, _ *node) (script.Result, error) {
			return script.Unlock(ctx, l.rdb, k.keys.lock, k.keys.fences, k.token, l.channel)
		})
		if err == nil {
			if r.Status != script.Held && unanswered != nil {
				// Redis remembers the last releases of a name only: an earlier try may be the one that released it.
				return false, unanswered
			}
			return r.Status == script.Held, nil
		}
		unanswered = err
		if try == tries || isRefusal(err) {
			return false, err
		}
		time.Sleep(l.opts.RedisTimeout / 2)
	}
}

// ask runs one step for a lock within a budget. No breaker holds it back: a lock in the hand is worth every try.
func ask[R clocked](ctx context.Context, l *Locker, k *Lock, op string, budget time.Duration, run func(context.Context, *node) (R, error)) (R, error) {
	n, err := l.nodes.of(ctx, k.keys.lock)
	if err != nil {
		var none R
		return none, err
	}
	r, err := tasks.Within(ctx, &l.work, budget, func(ctx context.Context) (R, error) {
		sent := time.Now()
		r, err := run(ctx, n)
		if err == nil {
			n.clock.sample(sent, r.ServerTime())
		}
		return r, err
	})
	if ctx.Err() == nil {
		n.note(op, err)
	}
	return r, err
}

func (l *Locker) tellRedis(event RedisEvent) {
	tell(l.opts.Observer.Redis, event)
}

// isRefusal reports whether Redis, or the client, will answer so again.
func isRefusal(err error) bool {
	return err != nil && (!isTransport(err) && !isPassing(err) || errors.Is(err, redis.ErrClosed))
}

// endedError is the error of a call whose context has ended.
func endedError(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	return contextError(ctx)
}

// lockedError is endedError of a call that waited, the last time because of a failure of Redis unless that is nil.
func lockedError(ctx context.Context, failure error) error {
	err := endedError(ctx)
	switch {
	case err == ErrClosed:
		return err
	case failure != nil:
		return fmt.Errorf("%w: %w: %w", ErrLocked, err, redisError(failure))
	default:
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
}
