package stockade

import (
	"context"
	"errors"
	"time"
)

// errNoReturn is the end of a span whose code panicked or called Goexit: only a Codec or a Clone can, on a caller's goroutine.
var errNoReturn = errors.New("stockade: the call did not return")

// traceRead makes a read, as a span of its own when that is asked for.
func (c *core) traceRead(ctx context.Context, key string, read func(context.Context) (boxed, error)) (boxed, error) {
	if !c.opts.Observer.TraceReads {
		return read(ctx)
	}
	t := c.opts.Observer.begin(ctx, SpanBegin{Span: SpanRead, Keys: []string{key}})
	end := SpanEnd{Err: errNoReturn}
	defer func() { t.end(end) }()
	e, err := read(t.ctx)
	end.Err, end.Source = err, e.Source
	return e, err
}

// traceMiss is miss as a span.
func (c *view) traceMiss(ctx context.Context, key string, load source, token string, saw *sight, begun time.Time) (boxed, error) {
	t := c.opts.Observer.begin(ctx, SpanBegin{Span: SpanMiss, Keys: []string{key}, Time: begun})
	end := SpanEnd{Err: errNoReturn}
	defer func() { t.end(end) }()
	e, shared, err := c.miss(t.ctx, key, load, token, saw)
	end.Err, end.Source = err, e.Source
	if shared != nil {
		end.Shared = []context.Context{shared}
	}
	return e, err
}

// traceMany is a read of many keys as a span.
func (r *batchRead) traceMany(ctx context.Context, span Span, keys []string, begun time.Time, read func(context.Context)) {
	t := r.opts.Observer.begin(ctx, SpanBegin{Span: span, Keys: keys, Batch: true, Time: begun})
	end := SpanEnd{Err: errNoReturn}
	defer func() { t.end(end) }()
	read(t.ctx)
	end.Err, end.Shared = r.failure(), r.shared
}

func (f *flight) traceLoad() traced {
	return f.opts.Observer.begin(f.caller, SpanBegin{Span: SpanLoad, Keys: []string{f.key}})
}

func (f *flight) traceCommit() traced {
	return f.opts.Observer.begin(f.caller, SpanBegin{Span: SpanCommit, Keys: []string{f.key}})
}

// loadEnd is the end of the load of one key, with the stamp of its lease.
func loadEnd(ruledOut bool, err error, stamp string) SpanEnd {
	end := SpanEnd{Err: err, Stamps: []string{stamp}}
	if ruledOut {
		end.RuledOut = 1
	}
	return end
}

// trace begins a span of some keys of a batch.
func (b *batch) trace(span Span, bids []*bid) traced {
	if b.opts.Observer.Trace == nil {
		return traced{ctx: b.caller}
	}
	keys := make([]string, len(bids))
	for i, bid := range bids {
		keys[i] = bid.key
	}
	return b.opts.Observer.begin(b.caller, SpanBegin{Span: span, Keys: keys, Batch: true})
}

// loadEndOf is the end of the load of a batch, by what its keys have come to.
func loadEndOf(bids []*bid, outcomes []*outcome, ruledOut int) SpanEnd {
	end := SpanEnd{RuledOut: ruledOut}
	for i, o := range outcomes {
		end.Stamps = append(end.Stamps, bids[i].lease.stamp)
		if end.Err == nil && o.err != nil && !isAbsent(o.err) {
			end.Err = o.err
		}
	}
	return end
}

func commitEndOf(endings []*ending) (end SpanEnd) {
	for _, e := range endings {
		end.Outcomes = append(end.Outcomes, e.event.Outcome)
	}
	return end
}

// traceWait is each key's part in a span. The span ends with the last of them, before that key's callers have an answer.
func (b *batch) traceWait(bids []*bid) (part traced) {
	span, left := b.trace(SpanWait, bids), len(bids)
	if span.done != nil {
		part.done = func(SpanEnd) {
			if left--; left == 0 {
				span.end(waitEndOf(bids))
			}
		}
	}
	return part
}

func waitEndOf(bids []*bid) (end SpanEnd) {
	for _, bid := range bids {
		end.Stamps = append(end.Stamps, bid.wait.stamp)
		if end.Err == nil {
			end.Err = bid.wait.err
		}
	}
	return end
}

func refreshEndOf(events []RefreshEvent) SpanEnd {
	end := SpanEnd{Skipped: true}
	for _, e := range events {
		end.Skipped = end.Skipped && e.Skipped
		if end.Err == nil {
			end.Err = e.Err
		}
	}
	return end
}
