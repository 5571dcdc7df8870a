package redlock

import (
	"context"
	"sync"
)

// turns lets one waiter of a name ask the servers at a time, in the order in which they came: however many callers wait
// in this process, they do not take each other's votes away. The zero value is ready. Safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	names map[string]*turn // guarded by mu: those that somebody has or waits for
}

type turn struct {
	taken chan struct{} // of capacity one: full while somebody has the turn; those who wait to fill it queue up
	users int           // guarded by turns.mu
}

// enter returns when it is the caller's turn, which it must end with leave, or when ctx ends. It calls waits first when
// the caller has to wait.
func (ts *turns) enter(ctx context.Context, name string, waits func()) error {
	ts.mu.Lock()
	if ts.names == nil {
		ts.names = map[string]*turn{}
	}
	t := ts.names[name]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		ts.names[name] = t
	}
	t.users++
	ts.mu.Unlock()

	select {
	case t.taken <- struct{}{}:
		return nil
	default:
	}
	waits()
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		ts.forget(name)
		return context.Cause(ctx)
	}
}

// leave gives the turn to the next in line.
func (ts *turns) leave(name string) {
	ts.mu.Lock()
	t := ts.names[name]
	ts.mu.Unlock()
	<-t.taken
	ts.forget(name)
}

// forget takes one user of a name away.
func (ts *turns) forget(name string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.names[name]
	t.users--
	if t.users == 0 {
		delete(ts.names, name)
	}
}
