package stockade

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Observer is told what happens besides the answers to calls. Its functions may be nil, are called on the
// goroutine where it happens, concurrently, and must return, quickly: after [runtime.Goexit], which a test's FailNow
// calls, callers may wait until their contexts end. When one panics, the work goes on, and the first such panic of the
// process is logged by slog. [Observer.And] joins two.
type Observer struct {
	Load    func(LoadEvent)    // a load of this process has ended
	Wait    func(WaitEvent)    // a wait for another process's load, or for a lock, has ended
	Refresh func(RefreshEvent) // a background refresh has ended, or was skipped
	Redis   func(RedisEvent)   // Redis failed, is misconfigured, or works again
	Lock    func(LockEvent)    // a lock was taken, lost or released
	Guard   func(GuardEvent)   // the Guard did not answer, so that the key is loaded

	// Trace is told when a span begins, with the context of the call that caused it, and returns the context of what
	// happens inside the span, of which only the values are used, and what is to be told of the end: exactly once, maybe on
	// another goroutine. Nil for either changes nothing. A hit is no span, and costs nothing.
	Trace func(ctx context.Context, begin SpanBegin) (context.Context, func(SpanEnd))
	// TraceReads tells Trace of every read, hits too, as [SpanRead].
	TraceReads bool
}

// And returns an Observer that tells both, o first. What is nil in both stays nil. The Trace of other gets the context
// that o's returned, and hears of the end first.
func (o Observer) And(other Observer) Observer {
	return Observer{
		Load: both(o.Load, other.Load), Wait: both(o.Wait, other.Wait), Refresh: both(o.Refresh, other.Refresh),
		Redis: both(o.Redis, other.Redis), Lock: both(o.Lock, other.Lock), Guard: both(o.Guard, other.Guard),
		Trace: o.nest(other), TraceReads: o.tracesReads() || other.tracesReads(),
	}
}

func both[E any](f, g func(E)) func(E) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(e E) {
		tell(f, e)
		tell(g, e)
	}
}

func (o Observer) nest(inner Observer) func(context.Context, SpanBegin) (context.Context, func(SpanEnd)) {
	switch {
	case o.Trace == nil:
		return inner.Trace
	case inner.Trace == nil:
		return o.Trace
	}
	return func(ctx context.Context, b SpanBegin) (context.Context, func(SpanEnd)) {
		outer := o.begin(ctx, b)
		inner := inner.begin(outer.ctx, b)
		return inner.ctx, func(e SpanEnd) {
			inner.end(e)
			outer.end(e)
		}
	}
}

func (o *Observer) tracesReads() bool { return o.Trace != nil && o.TraceReads }

// tell calls a function of an Observer, if there is one.
func tell[E any](f func(E), e E) {
	if f == nil {
		return
	}
	defer survive()
	f(e)
}

// survive, deferred, keeps a panic in a function of an Observer from ending a flight and the process with it.
func survive() {
	if r := recover(); r != nil {
		survived.Do(func() {
			slog.Error("stockade: a function of the Observer panicked; later panics are not logged", "panic", r, "stack", string(debug.Stack()))
		})
	}
}

var survived sync.Once

// LoadEvent tells of one run of a loader.
type LoadEvent struct {
	Key     string
	Took    time.Duration
	Err     error  // nil, an error Is ErrNotFound, or a *LoadError
	Stamp   string // of the lease, which waiters elsewhere see in WaitEvent too; empty without a lease
	Outcome Outcome
}

// Outcome says what became of a loaded value.
type Outcome uint8

const (
	Stored    Outcome = iota // in Redis
	NotStored                // the loader or a policy did not want it stored, or there was nothing to store
	Rejected                 // something newer happened to the key during the load, or the lease was lost
	Unknown                  // Redis did not answer
	Ignored                  // a BatchLoader returned a key that it was not asked for
)

func (o Outcome) String() string {
	return [...]string{"stored", "not stored", "rejected", "unknown", "ignored"}[o]
}

// WaitEvent tells of one wait for another process.
type WaitEvent struct {
	Key   string // or the name of a lock
	Took  time.Duration
	Polls int    // how often Redis was asked without having been woken
	Wakes int    // how often a message ended the wait
	Stamp string // of the lease that was waited for last
	Err   error  // what ended the wait when it was not a value or a grant
}

// RefreshEvent tells of one background refresh.
type RefreshEvent struct {
	Key     string
	Early   bool  // the value was still fresh
	Skipped bool  // it was not begun: too many loads, or another process refreshes
	Err     error // of a load that failed: callers got the older value and no error
}

// RedisEvent tells of one failure of Redis, or of its end.
type RedisEvent struct {
	Op            string // what was asked
	Node          string // whom: an address; empty where there is only one
	Err           error  // nil when the node works again
	Misconfigured bool   // Redis answered, and will keep answering so: told once for each kind
	Open          bool   // the breaker of the node is open: no call waits for it
}

// GuardEvent tells of one question to the Guard that it did not answer.
type GuardEvent struct {
	Keys []string
	Err  error // its own, a *PanicError, or a time-out
}

// LockEvent tells of one step in the life of a lock.
type LockEvent struct {
	Name  string
	Kind  LockKind
	Fence int64
	Held  time.Duration // since it was taken
	Err   error         // of a failed release
}

// LockKind is what happened to a lock.
type LockKind uint8

const (
	LockTaken LockKind = iota
	LockReleased
	LockLost
)

func (k LockKind) String() string { return [...]string{"taken", "released", "lost"}[k] }
