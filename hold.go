package stockade

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/stockade-cache/stockade/internal/script"
)

// landing is how a load ended.
type landing[R any] struct {
	result R
	err    error
	took   time.Duration
}

// launch runs a load on a goroutine of its own, and leave when it has returned: one that ignores its context keeps its
// place. The context has the given values; it ends with the load, at LoadTimeout, and on Close.
func launch[R any](c *core, values context.Context, mark *loading, leave func(), load func(context.Context) (R, error)) (context.Context, <-chan landing[R]) {
	ctx := context.WithValue(context.WithoutCancel(values), loadingKey{}, mark)
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, expire := context.WithTimeoutCause(ctx, c.opts.LoadTimeout, ErrLoadTimeout)
	unhook := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	landed := make(chan landing[R], 1)
	c.stats.loading.Add(1)
	begun := time.Now()
	end := func(l landing[R]) {
		mark.ended.Store(true)
		c.stats.loading.Add(-1)
		leave()
		l.took = time.Since(begun)
		landed <- l
		unhook()
		expire()
		cancel(nil)
	}
	started := c.work.Run(func() {
		var l landing[R]
		returned := false
		defer func() {
			if !returned {
				l = landing[R]{}
				if v := recover(); v != nil {
					l.err = &PanicError{Value: v, Stack: debug.Stack()}
				} else {
					l.err = &PanicError{Value: "runtime.Goexit", Stack: debug.Stack()}
				}
			}
			l.err = sound(l.err)
			end(l)
		}()
		l.result, l.err = load(ctx)
		returned = true
	})
	if !started {
		end(landing[R]{err: ErrClosed})
	}
	return ctx, landed
}

// sound returns an error that may be asked what it is. That of a loader need not bear it, a nil *T in an error above all, and
// would end the process on the goroutine of a flight.
func sound(err error) (checked error) {
	defer func() {
		if v := recover(); v != nil {
			checked = &PanicError{Value: fmt.Sprintf("%T cannot say what it is: %v", err, v), Stack: debug.Stack()}
		}
	}()
	if err != nil {
		_ = err.Error()
		_ = errors.Is(err, errNever) // calls what the error and all that it wraps have to answer with
		_ = errors.As(err, new(*neverError))
	}
	return err
}

// neverError is what no error is.
type neverError struct{ error }

var errNever = &neverError{}

// waitFor waits for a load, or the end of its context: then it takes the load's own result, if that came at that moment.
func waitFor[R any](ctx context.Context, landed <-chan landing[R]) landing[R] {
	begun := time.Now()
	select {
	case l := <-landed:
		return l
	case <-ctx.Done():
		return cut(ctx, landed, begun)
	}
}

func cut[R any](ctx context.Context, landed <-chan landing[R], begun time.Time) landing[R] {
	select {
	case l := <-landed:
		return l
	default:
		return landing[R]{err: context.Cause(ctx), took: time.Since(begun)}
	}
}

// hold waits as waitFor does and renews leases meanwhile, also when a message says that somebody has changed a key. Leases
// that are lost do not end the load: under frequent invalidations nobody would get a value. The commit decides. renew says
// Held, Lost when none is left, or unanswered.
func hold[R any](c *core, ctx context.Context, landed <-chan landing[R], wakes <-chan struct{}, renew func() script.Status) landing[R] {
	begun := time.Now()
	every := c.opts.LeaseTTL / 3
	timer := time.NewTimer(every)
	defer timer.Stop()
	renewed := make(chan script.Status, 1)
	renewing, again, lost := false, false, false
	// No renewal may be sent after the commit.
	defer func() {
		if renewing {
			<-renewed
		}
	}()
	for {
		select {
		case l := <-landed:
			return l
		case <-ctx.Done():
			return cut(ctx, landed, begun)
		case <-wakes:
			if again = renewing; !renewing { // a renewal that is out may have come before what the message tells
				timer.Reset(0)
			}
		case <-timer.C:
			if !renewing && !lost {
				renewing = c.calls.Run(func() { renewed <- renew() })
			}
		case status := <-renewed:
			renewing = false
			switch status {
			case script.Held:
				if timer.Reset(every); again {
					timer.Reset(0)
				}
				again = false
			case script.Lost:
				lost = true // and never taken again
			default:
				timer.Reset(every / 8)
			}
		}
	}
}
