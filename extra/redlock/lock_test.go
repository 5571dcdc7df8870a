package redlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
)

// TestErrLooksAtTheTime: in a process that goes on after a stop the work may run before the watchdog does.
func TestErrLooksAtTheTime(t *testing.T) {
	k := &Lock{locker: &Locker{held: map[*Lock]struct{}{}}, claim: &claim{}, over: make(chan struct{}), until: time.Now().Add(time.Hour)}
	ctx, cancel := context.WithCancelCause(t.Context())
	k.ctx, k.cancel = lockContext{ctx, k}, cancel
	if err := k.Context().Err(); err != nil {
		t.Errorf("the context of a valid lock ended with %v", err)
	}
	k.until = time.Now() // no watchdog has seen it
	if err := k.Context().Err(); err != context.Canceled || context.Cause(k.Context()) != stockade.ErrLockLost {
		t.Errorf("the context of a lock that has expired: %v, cause %v, want Canceled and ErrLockLost", err, context.Cause(k.Context()))
	}
}

// TestUnlockLooksAtTheTime: nor has the watchdog seen then that the lock is lost, and the servers may not answer.
func TestUnlockLooksAtTheTime(t *testing.T) {
	k := &Lock{locker: &Locker{held: map[*Lock]struct{}{}}, claim: &claim{}, over: make(chan struct{}), watched: make(chan struct{}), freed: make(chan struct{}), until: time.Now()}
	k.ctx, k.cancel = context.WithCancelCause(t.Context())
	close(k.watched)
	k.claim.locker = k.locker
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
