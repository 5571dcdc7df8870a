package stockade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// tasks are goroutines with an owner that waits for them. Safe for concurrent use.
type tasks struct {
	mu     sync.Mutex
	closed bool // guarded by mu: nothing is begun any more
	wg     sync.WaitGroup
}

// run starts f, or reports false after close.
func (t *tasks) run(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// begin is run for work on the caller's own goroutine: it is followed by end, unless it reports false.
func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Add(1)
	return true
}

func (t *tasks) end() { t.wg.Done() }

// close lets nothing begin and returns when all that did has ended.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}

// timeoutError says that a call was given up. It is a [net.Error], as the client's own time-outs are.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.after) }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// within gives a call d to answer, whatever the client's own time-outs and retries are, and stops waiting when ctx
// ends. The call itself goes on, on a goroutine that tasks own: go-redis does not watch a context while it waits for a
// reply. An answer that nobody waits for any more is dropped.
func within[R any](ctx context.Context, t *tasks, d time.Duration, call func(context.Context) (R, error)) (R, error) {
	type answer struct {
		r   R
		err error
	}
	answered := make(chan answer, 1)
	limited, cancel := context.WithTimeoutCause(ctx, d, timeoutError{d})
	started := t.run(func() {
		defer cancel()
		r, err := call(limited)
		answered <- answer{r, err}
	})
	var none R
	if !started {
		cancel()
		return none, ErrClosed
	}
	select {
	case a := <-answered:
		return a.r, a.err
	case <-limited.Done():
	}
	select {
	case a := <-answered: // at the last moment
		return a.r, a.err
	default:
		return none, context.Cause(limited)
	}
}

// isTransport reports whether an error says that no answer came: nothing is known about what the server did.
func isTransport(err error) bool {
	var reply redis.Error
	if isTimeout(err) {
		return true
	}
	return !errors.As(err, &reply) && !errors.Is(err, context.Canceled)
}

// isTimeout reports whether the time for an answer has passed.
func isTimeout(err error) bool {
	var net net.Error
	return errors.As(err, &net) && net.Timeout()
}

// unbroken makes a call again while the connections that it meets have failed: all that were idle may have been closed
// at once. A client without retries does not do so by itself, and one with TLS notices a closed connection only when it
// writes. A connection that cannot be made is tried twice.
func unbroken(until time.Time, call func() error) error {
	const most = 32 // a server may also close whatever it is sent
	for try := 1; ; try++ {
		err := call()
		if !isBroken(err) || try == most || isDial(err) && try == 2 || !time.Now().Before(until) {
			return err
		}
	}
}

// isBroken reports whether a connection failed, so that another may serve at once.
func isBroken(err error) bool {
	return err != nil && isTransport(err) && !isTimeout(err) && !errors.Is(err, redis.ErrClosed)
}

// isDial reports whether a connection could not be made.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isPassing reports whether a server refused a request for a state that it leaves by itself.
func isPassing(err error) bool {
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) || redis.IsTryAgainError(err) ||
		redis.IsMasterDownError(err) || redis.IsMaxClientsError(err) || redis.IsNoReplicasError(err) || redis.IsOOMError(err)
}
