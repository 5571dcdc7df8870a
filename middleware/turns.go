package middleware

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// turns let requests that have waited for too long run the handler one by one. Safe for concurrent use.
type turns struct {
	mu sync.Mutex
	m  map[string]*turn // guarded by mu
}

// turn is that of one key.
type turn struct {
	free  chan struct{} // holds one value while nobody has the turn
	users int           // guarded by turns.mu
}

// take waits for the turn of a key. It reports false when ctx ends first.
func (ts *turns) take(ctx context.Context, key string) bool {
	ts.mu.Lock()
	t := ts.m[key]
	if t == nil {
		if ts.m == nil {
			ts.m = map[string]*turn{}
		}
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		ts.m[key] = t
	}
	t.users++
	ts.mu.Unlock()
	select {
	case <-t.free:
		return true
	case <-ctx.Done():
		ts.leave(key, t)
		return false
	}
}

// give passes the turn on.
func (ts *turns) give(key string) {
	ts.mu.Lock()
	t := ts.m[key]
	ts.mu.Unlock()
	t.free <- struct{}{}
	ts.leave(key, t)
}

func (ts *turns) leave(key string, t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(ts.m, key)
	}
}

// queue is for a request that has waited for another's run for too long: it runs the handler when it is its turn.
func (v *visit) queue() {
	ctx, cancel := context.WithTimeoutCause(v.r.Context(), v.route.WaitTimeout, errWaited)
	defer cancel()
	if !v.m.turns.take(ctx, v.primary) {
		if v.r.Context().Err() != nil {
			v.abandon()
		} else {
			v.refuse(http.StatusServiceUnavailable, "wait-timeout")
		}
		return
	}
	defer v.m.turns.give(v.primary)
	v.status.forwarded(v.miss(), "wait-timeout")
	v.pass(entry{}, "")
}

// holdOff waits until a failed run may be repeated, and reports whether it is worth it.
func (v *visit) holdOff(err error) bool {
	if !isFailure(err) {
		return false
	}
	timer := time.NewTimer(failureBackoff)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-v.r.Context().Done():
		return false
	}
}
