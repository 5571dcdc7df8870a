package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stockade-cache/stockade"
)

// isLed reports whether the request is to be answered by its own run, that has begun in its place. If not, none will.
func (r *run) isLed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		r.client = nil
	}
	return r.begun
}

// lead answers with the response of the request's own run. e and err are what the cache gave.
func (v *visit) lead(r *run, e entry, err error) {
	if errors.Is(err, errWaited) {
		v.await(r, v.r.Context().Done())
	}
	if !r.take() {
		v.attend(r)
		return
	}
	select {
	case <-r.settled:
	default:
		switch {
		case v.r.Context().Err() != nil: // the run goes on, in the place of the request: that stays
			v.abandon()
			_ = http.NewResponseController(v.w).Flush()
			v.await(r, nil)
		case err == nil: // an older page, since the handler takes too long
			v.deliver(e)
		default:
			v.refuse(http.StatusGatewayTimeout, "run-timeout")
		}
		return
	}
	switch {
	case r.panicked != nil:
		panic(r.panicked)
	case r.own != nil:
		v.deliverOwn(r)
	case r.verdict.Value == nil || r.verdict.Value.Mark != nil: // it began to stream when it had no client any more
		v.abandon()
	default:
		verdict := r.verdict
		if x := verdict.Value.Index; x != nil {
			verdict.Value = &stored{Page: x.first}
		}
		v.status.code = r.fwd
		verdict.Age, verdict.Source = time.Since(r.start), stockade.Loaded
		v.deliver(verdict)
	}
}

// await waits for a run until left, but not for one that is given up.
func (v *visit) await(r *run, left <-chan struct{}) {
	timer := time.NewTimer(v.m.opts.giveUp() - time.Since(r.start))
	defer timer.Stop()
	select {
	case <-r.settled:
	case <-left:
	case <-v.m.closed:
	case <-timer.C:
	}
}

// attend keeps the client's writer open for a run that streams to it. From here on the run is the client's alone, and
// ends with it.
func (v *visit) attend(r *run) {
	select {
	case <-r.done:
	case <-v.r.Context().Done():
		r.cancel(context.Cause(v.r.Context()))
	case <-v.m.closed:
		r.cancel(stockade.ErrClosed)
	}
	<-r.done
	if r.panicked != nil {
		panic(r.panicked)
	}
}

// giveUp is when a run is given up.
func (o *Options) giveUp() time.Duration {
	return o.RunTimeout + max(o.RunTimeout/10, 100*time.Millisecond)
}

// isFailure reports whether a run has failed, so that another may do better.
func isFailure(err error) bool {
	var failed *stockade.LoadError
	return errors.As(err, &failed)
}

// fail answers when there is nothing to share.
func (v *visit) fail(err error) {
	switch {
	case v.r.Context().Err() != nil:
		v.abandon()
	case errors.Is(err, errWaited), errors.Is(err, stockade.ErrOverloaded), errors.Is(err, stockade.ErrLoadTimeout):
		v.queue()
	case isFailure(err):
		v.status.forwarded(v.miss(), "failed")
		v.pass(entry{}, "")
	default: // the cache is closed, or the handler asks for its own URL
		v.status.forwarded("bypass", "")
		v.pass(entry{}, "")
	}
}
