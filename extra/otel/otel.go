// Package otel tells OpenTelemetry what a cache, a middleware or a locker of stockade does: spans of the work behind a
// read that missed, histograms of how long it took, and the counters of Stats. It needs the API of OpenTelemetry only.
//
//	telemetry, err := otel.New(otel.Options{Name: "users"})
//	cache, err := stockade.New[User](rdb, stockade.Options{Prefix: "user", Observer: telemetry.Observer()})
//	err = telemetry.Watch(cache)
//	defer telemetry.Close()
//
// # Spans
//
// All are internal spans. stockade.read is a read that missed, from its question to Redis to its answer (every read, with
// [All]). Inside it are stockade.load, in which the loader runs; stockade.wait, for another process's load; and
// stockade.commit. They are inside the read that began the load; a read that joins it has a link to that one.
// stockade.refresh, in the background, is the root of a trace of its own with a link to what was read: it outlives that,
// and is sampled for itself. stockade.lock.wait and stockade.lock.hold are those of a Locker, also of extra/redlock.
//
// A load and the waits for it, in other processes, have the same stockade.lease.stamp, so that one leads to the other.
//
// # Attributes
//
// All spans and metrics have stockade.cache.name, which is [Options.Name]. stockade.outcome is one of a few words. Keys
// are in none, unless [Options.Keys] puts them on spans. A key is also in what a loader says in its errors, whose text is
// the status of a span: that is the loader's choice.
//
// A hit is not told of, and costs nothing.
package otel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockade-cache/stockade"
)

const scope = "github.com/stockade-cache/stockade/extra/otel"

// Reads says which reads have spans.
type Reads uint8

const (
	Misses Reads = iota // those that found nothing to serve
	All                 // hits too, and Lookup
)

// Options configure a [Telemetry]. Only Name is required.
type Options struct {
	// Name is the attribute stockade.cache.name of all spans and metrics. Give each cache and locker its own. Required.
	Name string
	// TracerProvider makes the spans. Default: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Default: the global one.
	MeterProvider metric.MeterProvider
	// Reads says which reads have spans. Default Misses.
	Reads Reads
	// Keys puts keys, and the names of locks, on spans: stockade.key, or for a batch the first 128 as stockade.keys. Never on
	// metrics. Default false.
	Keys bool
}

// Telemetry tells OpenTelemetry of one cache, middleware or locker. Safe for concurrent use.
type Telemetry struct {
	opts   Options
	tracer trace.Tracer
	meter  metric.Meter
	name   attribute.KeyValue
	kinds  []kind // by stockade.Span

	mu      sync.Mutex
	closed  bool                // guarded by mu
	watched metric.Registration // guarded by mu: nil when nothing is
}

// New returns a Telemetry. An error names the field that it refuses, or is that of the MeterProvider.
func New(opts Options) (*Telemetry, error) {
	switch {
	case opts.Name == "":
		return nil, errors.New(`otel: Options.Name is "": required`)
	case opts.Reads > All:
		return nil, fmt.Errorf("otel: Options.Reads is %d: must be Misses or All", opts.Reads)
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = api.GetTracerProvider()
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = api.GetMeterProvider()
	}
	t := &Telemetry{
		opts: opts, name: attribute.String("stockade.cache.name", opts.Name),
		tracer: opts.TracerProvider.Tracer(scope), meter: opts.MeterProvider.Meter(scope),
	}
	var err error
	t.kinds, err = newKinds(t.meter, t.name)
	return t, err
}

// Observer is for the Options of the cache, middleware or locker. [stockade.Observer.And] joins it with others.
func (t *Telemetry) Observer() stockade.Observer {
	return stockade.Observer{Trace: t.trace, TraceReads: t.opts.Reads == All}
}

// Source has counters: a [stockade.Cache], whatever its type, or a Middleware.
type Source interface{ Stats() stockade.Stats }

// Watch makes metrics of the counters of a cache, until Close. A Telemetry watches one: two would add up under one name.
func (t *Telemetry) Watch(s Source) error {
	if v := reflect.ValueOf(s); s == nil || v.Kind() == reflect.Pointer && v.IsNil() { // which would panic at each collection
		return errors.New("otel: the Source is nil")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return fmt.Errorf("otel: Watch of %q: %w", t.opts.Name, stockade.ErrClosed)
	case t.watched != nil:
		return fmt.Errorf("otel: %q watches a cache already: make another Telemetry", t.opts.Name)
	}
	instruments, observe, err := newCounters(t.meter, t.name)
	if err != nil {
		return err
	}
	t.watched, err = t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		observe(o, s.Stats())
		return nil
	}, instruments...)
	return err
}

// Close ends what Watch began, so that the cache is not held any longer. It may be called again. Spans and durations are
// made for as long as the Observer is told of spans.
func (t *Telemetry) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	watched := t.watched
	t.watched = nil
	if watched == nil {
		return nil
	}
	return watched.Unregister()
}

// maxListed bounds the attributes of a batch.
const maxListed = 128

func listed(list []string) []string { return slices.Clone(list[:min(len(list), maxListed)]) }
