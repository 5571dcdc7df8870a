package redlock

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/held"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// Locker takes locks that exclude each other among all processes that share servers and a Prefix. Safe for concurrent
// use.
//
// A lock is a promise with a limit: a holder that is stopped, or cut off from a majority of the servers, for longer than
// TTL loses it, and so it is when servers forget. [Lock.Context] ends before another can hold the lock unless they do.
type Locker struct {
	opts     Options // with the defaults filled in
	nodes    []*node
	turns    tasks.Turns   // of the callers that wait for a name: they do not take each other's votes away
	attempts chan struct{} // a place for each of a Lock: a crowd that asks at once overruns RedisTimeout
	work     tasks.Group
	locks    *held.Locks
}

// TryLock takes the lock of a name if a majority of the servers gives it, and returns [stockade.ErrLocked] if one
// answers and does not: another holds it, or several callers met and none got enough votes. Any other error but
// [stockade.ErrClosed] and ctx's cause Is [stockade.ErrRedis]: no majority answered within RedisTimeout.
func (l *Locker) TryLock(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, context.WithoutCancel(ctx), name, l.try)
}

// Lock takes the lock of a name, and waits until ctx ends while another holds it or no majority of the servers answers.
// The error then Is [stockade.ErrLocked] and Is ctx's cause, and Is [stockade.ErrRedis] when no majority answered at
// last. What a majority refuses for good, for a missing permission or a key of another type, is returned at once as
// [stockade.ErrRedis].
//
// A waiter asks again after a pause that grows from 5 ms to 100 ms. Callers of one Locker get their turn in the order in
// which they came; among processes there is no order. A holder that locks the same name again waits for itself.
func (l *Locker) Lock(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, context.WithoutCancel(ctx), name, l.wait)
}

// Do calls fn while holding the lock of a name, waiting for it like [Locker.Lock]. The context that fn gets is ctx,
// and ends when the lock is lost. The lock is released when fn returns, panics or calls [runtime.Goexit]. The error
// is fn's, joined with [stockade.ErrLockLost] when the lock was lost before it was released.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context) error) (err error) {
	k, err := l.acquire(ctx, ctx, name, l.wait)
	if err != nil {
		return err
	}
	defer func() {
		// A release that no majority answered is not fn's failure, and is known to the Observer.
		if lost := k.Unlock(ctx); errors.Is(lost, stockade.ErrLockLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(k.Context())
}

// Close ends all waiting calls, releases the locks that are held, and returns when every call to a server has returned.
// The contexts of the locks end, and their Unlock returns an error, that Is both [stockade.ErrLockLost] and
// [stockade.ErrClosed]. It does not close the clients.
func (l *Locker) Close() error {
	l.locks.Close(errLockClosed)
	l.work.Close()
	return nil
}

// acquire takes a lock by way of try or wait. The lock's context descends from parent.
func (l *Locker) acquire(ctx, parent context.Context, name string, how func(context.Context, string) (*claim, time.Time, error)) (*Lock, error) {
	ctx, end, ok := l.locks.Begin(ctx)
	if !ok {
		return nil, stockade.ErrClosed
	}
	defer end()
	c, until, err := how(ctx, name)
	if err != nil {
		return nil, err
	}
	return l.hold(parent, c, until), nil
}

// try asks the servers once.
func (l *Locker) try(ctx context.Context, name string) (*claim, time.Time, error) {
	c := l.newClaim(name)
	until, err := c.take(ctx)
	return c, until, err
}

// wait asks until the lock is ours or ctx ends.
func (l *Locker) wait(ctx context.Context, name string) (c *claim, until time.Time, err error) {
	event := stockade.WaitEvent{Key: name}
	began := time.Now()
	var end func(stockade.SpanEnd) // nil until the call waits
	waits := func() {
		if end == nil {
			_, end = l.opts.Observer.Trace(ctx, stockade.SpanBegin{Span: stockade.SpanLockWait, Keys: []string{name}, Time: began})
		}
	}
	defer func() {
		if end != nil {
			event.Took, event.Err = time.Since(began), err
			end(stockade.SpanEnd{Err: err})
			l.opts.Observer.Wait(event)
		}
	}()
	if l.turns.Enter(ctx, name, waits) != nil {
		return nil, time.Time{}, lockedError(ctx, nil)
	}
	defer l.turns.Leave(name)

	var failure error // of the last attempt
	for attempt := 0; ; attempt++ {
		select {
		case l.attempts <- struct{}{}:
		case <-ctx.Done():
			return nil, time.Time{}, lockedError(ctx, failure)
		}
		c, until, err := l.try(ctx, name)
		<-l.attempts
		switch {
		case err == nil:
			return c, until, nil
		case ctx.Err() != nil:
			return nil, time.Time{}, lockedError(ctx, failure)
		case errors.As(err, new(refusedError)):
			return nil, time.Time{}, err
		}
		waits()
		failure = err
		poll := time.NewTimer(pause(attempt, rand.Float64()))
		select {
		case <-poll.C:
			event.Polls++
		case <-ctx.Done():
		}
		poll.Stop()
		if ctx.Err() != nil {
			return nil, time.Time{}, lockedError(ctx, failure)
		}
	}
}

const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// pause is the time before a waiter asks again, growing by half each time. u is drawn from [0, 1) and spreads it over
// half to one and a half of that: callers whose votes split must not meet again.
func pause(attempt int, u float64) time.Duration {
	d := min(float64(firstPause)*math.Pow(1.5, float64(attempt)), float64(lastPause))
	return time.Duration(d * (0.5 + u))
}
