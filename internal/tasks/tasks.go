// Package tasks has goroutines with an owner that waits for them, and calls that are given up in time.
package tasks

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Group is a group of goroutines with an owner that waits for them. Safe for concurrent use.
type Group struct {
	Closed error // what calls get after Close

	mu     sync.Mutex
	closed bool // guarded by mu: nothing is begun any more
	wg     sync.WaitGroup
}

// Run starts f, or reports false after Close.
func (g *Group) Run(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// Begin is Run for work on the caller's own goroutine: it is followed by End, unless it reports false.
func (g *Group) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Add(1)
	return true
}

// End ends what Begin began.
func (g *Group) End() { g.wg.Done() }

// Close lets nothing begin and returns when all that did has ended.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}

// TimeoutError says that a call was given up. It is a [net.Error], as the client's own time-outs are.
type TimeoutError struct{ After time.Duration }

func (e TimeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.After) }

// Timeout is always true.
func (TimeoutError) Timeout() bool { return true }

// Temporary is always true.
func (TimeoutError) Temporary() bool { return true }

// Within gives a call d to answer, whatever the client's own time-outs and retries are, and stops waiting when ctx
// ends. The call itself goes on, on a goroutine of the group: go-redis does not watch a context while it waits for a
// reply. An answer that nobody waits for any more is dropped.
func Within[R any](ctx context.Context, g *Group, d time.Duration, call func(context.Context) (R, error)) (R, error) {
	type answer struct {
		r   R
		err error
	}
	answered := make(chan answer, 1)
	limited, cancel := context.WithTimeoutCause(ctx, d, TimeoutError{d})
	started := g.Run(func() {
		defer cancel()
		r, err := call(limited)
		answered <- answer{r, err}
	})
	var none R
	if !started {
		cancel()
		return none, g.Closed
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
