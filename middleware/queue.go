package middleware

import (
	"context"
	"net/http"
	"time"
)

// queue is for a request that has waited for another's run for too long: it runs the handler when it is its turn.
func (v *visit) queue() {
	ctx, cancel := context.WithTimeoutCause(v.r.Context(), v.route.WaitTimeout, errWaited)
	defer cancel()
	if v.m.turns.Enter(ctx, v.primary, func() {}) != nil {
		if v.r.Context().Err() != nil {
			v.abandon()
		} else {
			v.refuse(http.StatusServiceUnavailable, "wait-timeout")
		}
		return
	}
	defer v.m.turns.Leave(v.primary)
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
