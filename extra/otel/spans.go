package otel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockade-cache/stockade"
)

// kind is how a Span is told.
type kind struct {
	name string
	took metric.Float64Histogram             // nil when it is not measured
	with map[string]metric.MeasurementOption // by outcome
}

// newKinds are all, by stockade.Span.
func newKinds(meter metric.Meter, name attribute.KeyValue) ([]kind, error) {
	with := make(map[string]metric.MeasurementOption, len(words))
	for _, word := range words {
		with[word] = attributes(name, word)
	}
	kinds := make([]kind, stockade.SpanLockHold+1)
	for span, s := range map[stockade.Span]struct{ name, about string }{
		stockade.SpanRead:     {"stockade.read", ""},
		stockade.SpanMiss:     {"stockade.read", ""},
		stockade.SpanLoad:     {"stockade.load", "What loads took: the Guard, if there is one, and the loader."},
		stockade.SpanWait:     {"stockade.wait", "What waits for another process's load took."},
		stockade.SpanCommit:   {"stockade.commit", "What it took to tell Redis what came of a load."},
		stockade.SpanRefresh:  {"stockade.refresh", ""},
		stockade.SpanLockWait: {"stockade.lock.wait", "What waits for a lock took."},
		stockade.SpanLockHold: {"stockade.lock.hold", "How long locks were held."},
	} {
		kinds[span] = kind{name: s.name, with: with}
		if s.about == "" {
			continue
		}
		var err error
		kinds[span].took, err = meter.Float64Histogram(s.name+".duration", metric.WithUnit("s"), metric.WithDescription(s.about),
			metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
		if err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// trace is the Trace of the Observer.
func (t *Telemetry) trace(ctx context.Context, b stockade.SpanBegin) (context.Context, func(stockade.SpanEnd)) {
	if int(b.Span) >= len(t.kinds) {
		return ctx, nil // of a newer stockade
	}
	if b.Span == stockade.SpanMiss && t.opts.Reads == All { // its read has a span
		read := trace.SpanFromContext(ctx)
		return ctx, func(e stockade.SpanEnd) { link(read, e.Shared) }
	}
	s := t.kinds[b.Span]
	ctx, span := t.tracer.Start(ctx, s.name, t.startOf(ctx, b)...)
	return ctx, func(e stockade.SpanEnd) {
		defer span.End() // also when an error cannot say what it is
		outcome := outcomeOf(b, e)
		if s.took != nil {
			s.took.Record(ctx, time.Since(b.Time).Seconds(), s.with[outcome])
		}
		if span.IsRecording() {
			t.describe(span, b, e, outcome)
		}
	}
}

// startOf is what is known of a span when it starts. A refresh outlives the read that began it, whose end does not tell
// that of the trace: so it has a trace of its own.
func (t *Telemetry) startOf(ctx context.Context, b stockade.SpanBegin) []trace.SpanStartOption {
	opts := make([]trace.SpanStartOption, 0, 4)
	opts = append(opts, trace.WithTimestamp(b.Time), trace.WithAttributes(t.name))
	if b.Span == stockade.SpanRefresh {
		opts = append(opts, trace.WithNewRoot())
		if from := trace.SpanContextFromContext(ctx); from.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from}))
		}
	}
	return opts
}

// describe says on a span how it ended.
func (t *Telemetry) describe(span trace.Span, b stockade.SpanBegin, e stockade.SpanEnd, outcome string) {
	list := make([]attribute.KeyValue, 0, 4)
	list = append(list, outcomeKey.String(outcome))
	if b.Batch {
		list = append(list, attribute.Int("stockade.key.count", len(b.Keys)))
	}
	if t.opts.Keys {
		list = append(list, oneOrMany(b, "stockade.key", b.Keys)...)
	}
	if len(e.Stamps) > 0 {
		list = append(list, oneOrMany(b, "stockade.lease.stamp", e.Stamps)...)
	}
	span.SetAttributes(list...)
	link(span, e.Shared)
	switch {
	case e.Err != nil && isFailure(outcome):
		t.fail(span, b.Span, e.Err)
	case b.Span == stockade.SpanCommit && outcome == "unknown":
		span.SetStatus(codes.Error, "Redis did not answer")
	}
}

// oneOrMany is an attribute of one key, or of a batch, whose name is then the plural.
func oneOrMany(b stockade.SpanBegin, name string, values []string) []attribute.KeyValue {
	switch {
	case b.Batch:
		return []attribute.KeyValue{attribute.StringSlice(name+"s", listed(values))}
	case values[0] == "": // a load without a lease
		return nil
	}
	return []attribute.KeyValue{attribute.String(name, values[0])}
}

// fail says on a span that what it stands for failed. The error itself is an event of the load where it began.
func (t *Telemetry) fail(span trace.Span, kind stockade.Span, err error) {
	err = t.withoutKeys(err)
	span.SetStatus(codes.Error, err.Error())
	if kind != stockade.SpanLoad {
		return
	}
	var load *stockade.LoadError
	if errors.As(err, &load) {
		err = load.Err
	}
	var event []trace.EventOption
	var panicked *stockade.PanicError
	if errors.As(err, &panicked) {
		event = append(event, trace.WithAttributes(attribute.String("exception.stacktrace", string(panicked.Stack))))
	}
	span.RecordError(err, event...)
}

// withoutKeys is an error that names no keys unless they are asked for.
func (t *Telemetry) withoutKeys(err error) error {
	var some *stockade.KeysError
	if t.opts.Keys || !errors.As(err, &some) {
		return err
	}
	return fmt.Errorf("stockade: %d keys failed", len(some.Errs))
}

// link points to the spans of the reads whose flights a read has joined.
func link(span trace.Span, shared []context.Context) {
	if len(shared) == 0 || !span.IsRecording() {
		return
	}
	linked := map[trace.SpanID]bool{}
	for _, ctx := range shared {
		if to := trace.SpanContextFromContext(ctx); to.IsValid() && !linked[to.SpanID()] && len(linked) < maxListed {
			linked[to.SpanID()] = true
			span.AddLink(trace.Link{SpanContext: to})
		}
	}
}
