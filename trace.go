package stockade

import (
	"context"
	"time"
)

// Span is a part of the work behind a read, or of the life of a lock, with a beginning and an end. [Observer.Trace] is told of both.
type Span uint8

const (
	SpanRead     Span = iota // a read of any kind, told of only with [Observer.TraceReads]
	SpanMiss                 // a read that found nothing to serve, until it returns; begins with the read, after the local tier
	SpanLoad                 // the Guard is asked, if there is one, and the loader runs: its context descends from Trace's
	SpanWait                 // the wait of a flight for another process's lease
	SpanCommit               // Redis is told what came of a load under a lease
	SpanRefresh              // a background refresh asks for the lease and, when that is granted, loads
	SpanLockWait             // the wait for a lock
	SpanLockHold             // a lock is held: [Lock.Context] descends from Trace's
)

func (s Span) String() string {
	return [...]string{"read", "miss", "load", "wait", "commit", "refresh", "lock wait", "lock hold"}[s]
}

// SpanBegin tells of the beginning of a span.
type SpanBegin struct {
	Span  Span
	Keys  []string  // what it is about: one key, those of a batch, or the name of a lock. Not to be changed
	Batch bool      // of GetMany, or of what it has begun
	Time  time.Time // when it began, which may be a little ago
}

// SpanEnd tells of the end of a span.
type SpanEnd struct {
	// Err is what the span came to: what a read or the wait for a lock returns; of a load nil, an error that Is
	// [ErrNotFound], or its failure as in [LoadEvent] (of a batch, the first key's that failed); of a wait what ended it
	// when that was neither a value nor a grant; of a refresh as in [RefreshEvent]; of a held lock [ErrLockLost], or that
	// of a failed release.
	Err      error
	Source   Source            // of a read of one key that returned an entry
	Stamps   []string          // of the leases of a load, or those waited for last: in the order of Keys, "" for none
	Outcomes []Outcome         // of a commit, in the order of Keys
	RuledOut int               // of a load: keys that the Guard ruled out
	Skipped  bool              // of a refresh: another process was first, or Redis failed
	Shared   []context.Context // of a miss: what Trace returned for the misses whose flights it has joined
}

// traced is a span that has begun.
type traced struct {
	ctx  context.Context // has the values of the span, and the end that it would have without
	done func(SpanEnd)   // nil when nobody wants to know
}

// begin tells of a span. A Trace that panics, or returns nil, leaves it as it is without.
func (o *Observer) begin(ctx context.Context, b SpanBegin) (t traced) {
	t.ctx = ctx
	if o.Trace == nil || ctx == nil || b.Span == SpanRead && !o.TraceReads {
		return t
	}
	if b.Time.IsZero() {
		b.Time = time.Now()
	}
	defer survive()
	values, done := o.Trace(ctx, b)
	t.done = done
	if values != nil {
		t.ctx = valued{ctx, values}
	}
	return t
}

func (t traced) end(e SpanEnd) { tell(t.done, e) }

// valued is a context with the values of another: whatever Trace returns, a caller leaves when its own context ends.
type valued struct {
	context.Context
	values context.Context
}

// Value leaves what package context and this one keep in a context as it was: the tracer's may be no descendant of it.
func (c valued) Value(key any) any {
	if key == endKey || key == (loadingKey{}) {
		return c.Context.Value(key)
	}
	return c.values.Value(key)
}

// endKey is the key under which package context finds out whose end a context shares, and its cause.
var endKey = func() any {
	ended, end := context.WithCancel(context.Background())
	end()
	asked := &keyed{Context: ended}
	_ = context.Cause(asked)
	return asked.key
}()

// keyed keeps the key of the value that it was asked for.
type keyed struct {
	context.Context
	key any
}

func (c *keyed) Value(key any) any {
	c.key = key
	return nil
}
