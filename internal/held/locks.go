package held

import (
	"context"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/internal/tasks"
)

// Locks are those of one Locker. Safe for concurrent use.
type Locks struct {
	work    *tasks.Group
	timeout time.Duration // of one request
	errs    Errors
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool               // guarded by mu
	calls  sync.WaitGroup     // calls that may still take a lock; begun with mu, and not after closed
	held   map[*Lock]struct{} // guarded by mu: neither lost nor released
}

// Errors are those of the Locker.
type Errors struct {
	Lost       error // a lock is not held any more
	Unanswered error // of a request
	Closed     error
}

// NewLocks returns the locks of a Locker whose calls run in work, and one of whose requests may take timeout.
func NewLocks(work *tasks.Group, timeout time.Duration, errs Errors) *Locks {
	ls := &Locks{work: work, timeout: timeout, errs: errs, held: map[*Lock]struct{}{}}
	ls.ctx, ls.cancel = context.WithCancelCause(context.Background())
	return ls
}

// Begin begins a call that may take a lock, unless Close has been called. The context is ctx, and ends with Close, with
// Errors.Closed as its cause. The call ends with end.
func (ls *Locks) Begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, nil, false
	}
	ls.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ls.ctx, func() { cancel(ls.errs.Closed) })
	return ctx, func() { stop(); cancel(nil); ls.calls.Done() }, true
}

// Budget is how long a renewal to ttl may take, so that it can be repeated.
func (ls *Locks) Budget(ttl time.Duration) time.Duration { return min(ls.timeout, ttl/4) }

// Close ends the calls that wait, and releases all locks that are held, with a reason that their holders learn. It
// returns when the releases have been answered, or asked for in vain.
func (ls *Locks) Close(why error) {
	ls.mu.Lock()
	ls.closed = true
	ls.mu.Unlock()
	ls.cancel(ls.errs.Closed)
	ls.calls.Wait() // from here on no lock is added
	ls.mu.Lock()
	held := make([]*Lock, 0, len(ls.held))
	for k := range ls.held {
		held = append(held, k)
	}
	ls.mu.Unlock()
	for _, k := range held {
		k.release(context.Background(), why)
	}
	for _, k := range held {
		<-k.freed
	}
}

func (ls *Locks) add(k *Lock) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.held[k] = struct{}{}
}

func (ls *Locks) forget(k *Lock) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.held, k)
}
