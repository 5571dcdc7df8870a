package redlock

import (
	"context"
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
