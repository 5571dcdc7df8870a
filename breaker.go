package stockade

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// errOpen stands for a call that was not made because the node has stopped answering.
type errOpen struct{ cause error }

func (e errOpen) Error() string { return "not asked, it does not answer: " + e.cause.Error() }
func (e errOpen) Unwrap() error { return e.cause }

// breaker keeps calls from waiting for a node that does not answer. It opens on a time-out or network error when
// nothing succeeded within the last timeout. Open, it lets one probe through each timeout, the only call that may
// block, and closes at the first success. Safe for concurrent use.
type breaker struct {
	window  time.Duration // without a success after which a failure counts, and between probes
	start   time.Time
	probe   func()            // asks the node for a sign of life, in the background
	changed func(cause error) // told when it opens, and with nil when it closes
	isOpen  atomic.Bool       // read without mu by those who only want to pass
	success atomic.Int64      // when, by now, the last success was; zero: there was none

	mu     sync.Mutex
	cause  error     // guarded by mu: why it is open
	probed time.Time // guarded by mu
}

// now is the time in ns, and never zero.
func (b *breaker) now() int64 { return int64(time.Since(b.start)) + 1 }

// pass returns nil while the node answers. Otherwise the caller must not call it.
func (b *breaker) pass() error {
	if !b.isOpen.Load() {
		return nil
	}
	b.mu.Lock()
	cause, due := b.cause, time.Since(b.probed) >= b.window
	if due {
		b.probed = time.Now()
	}
	b.mu.Unlock()
	if cause == nil {
		return nil
	}
	if due {
		b.probe()
	}
	return errOpen{cause}
}

// succeeded notes that the node has answered; a refusal is an answer too.
func (b *breaker) succeeded() {
	b.success.Store(b.now())
	if !b.isOpen.Load() {
		return
	}
	b.mu.Lock()
	closed := b.cause != nil
	b.cause = nil
	b.isOpen.Store(false)
	b.mu.Unlock()
	if closed {
		b.changed(nil)
	}
}

// failed notes that a call was not answered.
func (b *breaker) failed(cause error) {
	last := b.success.Load()
	b.mu.Lock()
	opened := b.cause == nil && (last == 0 || time.Duration(b.now()-last) >= b.window)
	if opened {
		b.cause, b.probed = cause, time.Now()
		b.isOpen.Store(true)
	}
	b.mu.Unlock()
	if opened {
		b.changed(cause)
	}
}

// missed reports whether it is open, and somebody wanted to pass since then.
func (b *breaker) missed(since time.Time) bool {
	if !b.isOpen.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause != nil && !b.probed.Before(since)
}

// note tells the breaker how a call ended.
func (b *breaker) note(err error) {
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
	case err != nil && (isTransport(err) || isIdle(err)):
		b.failed(err)
	default:
		b.succeeded()
	}
}

// isIdle reports whether a server refuses every request, a probe too, until its state has changed. Most clients repeat
// such a request until its time is over.
func isIdle(err error) bool {
	return redis.IsLoadingError(err) || redis.IsMasterDownError(err) || redis.IsMaxClientsError(err)
}
