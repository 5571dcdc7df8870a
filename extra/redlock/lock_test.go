package redlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
)

// unwatched is a lock without a watchdog and without servers.
func unwatched(t *testing.T, until time.Time) *Lock {
	l := &Locker{opts: Options{Observer: silent}, held: map[*Lock]struct{}{}}
	k := &Lock{
		locker: l, claim: &claim{locker: l}, span: func(stockade.SpanEnd) {}, until: until,
		over: make(chan struct{}), watched: make(chan struct{}), freed: make(chan struct{}),
	}
	close(k.watched)
	ctx, cancel := context.WithCancelCause(t.Context())
	k.ctx, k.cancel = lockContext{ctx, k}, cancel
	return k
}

// TestErrLooksAtTheTime: in a process that goes on after a stop the work may run before the watchdog does.
func TestErrLooksAtTheTime(t *testing.T) {
	k := unwatched(t, time.Now().Add(time.Hour))
	if err := k.Context().Err(); err != nil {
		t.Errorf("the context of a valid lock ended with %v", err)
	}
	k.until = time.Now()
	if err := k.Context().Err(); err != context.Canceled || context.Cause(k.Context()) != stockade.ErrLockLost {
		t.Errorf("the context of a lock that has expired: %v, cause %v, want Canceled and ErrLockLost", err, context.Cause(k.Context()))
	}
}

// TestUnlockLooksAtTheTime: so may the end of the work, and the servers may not answer.
func TestUnlockLooksAtTheTime(t *testing.T) {
	k := unwatched(t, time.Now())
	if err := k.Unlock(t.Context()); err != stockade.ErrLockLost || context.Cause(k.Context()) != stockade.ErrLockLost {
		t.Errorf("Unlock of a lock that has expired: %v, cause %v, want ErrLockLost", err, context.Cause(k.Context()))
	}
}

// TestErrorWithoutFailures: after a stop all votes may be there, and too late.
func TestErrorWithoutFailures(t *testing.T) {
	if err := redisError(nil); !errors.Is(err, stockade.ErrRedis) || !errors.Is(err, errTooLate) {
		t.Errorf("got %v, want ErrRedis and that it was too late", err)
	}
}
