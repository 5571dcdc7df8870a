package tasks

import (
	"context"
	"slices"
	"sync"
)

// Turns lets one caller of a name act at a time, in the order in which they came. The zero value is ready. Safe for
// concurrent use.
type Turns struct {
	mu    sync.Mutex
	lines map[string][]chan struct{} // guarded by mu: the first of a line has its turn, the others' channels are open
}

// Enter returns when it is the caller's turn, which it must end with Leave, or when ctx ends: then with its cause. It
// calls waits first when the caller has to wait.
func (ts *Turns) Enter(ctx context.Context, name string, waits func()) error {
	turn := make(chan struct{})
	ts.mu.Lock()
	line := append(ts.lines[name], turn)
	if ts.lines == nil {
		ts.lines = map[string][]chan struct{}{}
	}
	ts.lines[name] = line
	ts.mu.Unlock()
	if len(line) == 1 {
		return nil
	}
	waits()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	ts.remove(name, turn)
	return context.Cause(ctx)
}

// Leave gives the turn to the next in line.
func (ts *Turns) Leave(name string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.removeLocked(name, 0)
}

// remove takes out a caller that will not use its turn, although it may have got it just so.
func (ts *Turns) remove(name string, turn chan struct{}) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.removeLocked(name, slices.Index(ts.lines[name], turn))
}

func (ts *Turns) removeLocked(name string, i int) {
	line := slices.Delete(ts.lines[name], i, i+1)
	ts.lines[name] = line
	switch {
	case len(line) == 0:
		delete(ts.lines, name)
	case i == 0:
		close(line[0])
	}
}
