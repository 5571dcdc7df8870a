package stockade

import (
	"context"
	"slices"
	"sync"
)

// queue lets one waiter of a name ask Redis at a time, in the order in which they came: however many callers wait in
// this process, an unlock wakes one of them. The zero value is empty. Safe for concurrent use.
type queue struct {
	mu    sync.Mutex
	lines map[string][]chan struct{} // guarded by mu: the first of a line has its turn, the others' channels are open
}

// enter returns when it is the caller's turn, which it must end with leave, or when ctx ends. It calls waits first when
// the caller has to wait.
func (q *queue) enter(ctx context.Context, name string, waits func()) error {
	turn := make(chan struct{})
	q.mu.Lock()
	line := append(q.lines[name], turn)
	if q.lines == nil {
		q.lines = map[string][]chan struct{}{}
	}
	q.lines[name] = line
	q.mu.Unlock()
	if len(line) == 1 {
		return nil
	}
	waits()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	q.remove(name, turn)
	return context.Cause(ctx)
}

// leave gives the turn to the next in line.
func (q *queue) leave(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeLocked(name, 0)
}

// remove takes out a waiter that will not use its turn, although it may have got it just so.
func (q *queue) remove(name string, turn chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeLocked(name, slices.Index(q.lines[name], turn))
}

func (q *queue) removeLocked(name string, i int) {
	line := slices.Delete(q.lines[name], i, i+1)
	q.lines[name] = line
	switch {
	case len(line) == 0:
		delete(q.lines, name)
	case i == 0:
		close(line[0])
	}
}
