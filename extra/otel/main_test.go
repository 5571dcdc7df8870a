package otel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// process is what one process of a service tells.
type process struct {
	*Telemetry
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
	tracer trace.Tracer // of the service itself
}

func newProcess(t testing.TB, change ...func(*Options)) *process {
	t.Helper()
	p := &process{spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(p.spans))
	opts := Options{Name: "users", TracerProvider: provider, MeterProvider: metric.NewMeterProvider(metric.WithReader(p.reader))}
	for _, f := range change {
		f(&opts)
	}
	var err error
	if p.Telemetry, err = New(opts); err != nil {
		t.Fatal(err)
	}
	p.tracer = provider.Tracer("service")
	t.Cleanup(func() { want(t, "close", p.Close(), nil) })
	return p
}

// cache returns a cache that the process tells of.
func (p *process) cache(t testing.TB, s redistest.Server, change ...func(*stockade.Options)) *stockade.Cache[string] {
	t.Helper()
	opts := stockade.Options{Prefix: "test", Jitter: -1, EarlyRefresh: -1, Observer: p.Observer()}
	for _, f := range change {
		f(&opts)
	}
	c, err := stockade.New[string](s.Client(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// named returns the ended spans of a name.
func (p *process) named(name string) (list []sdk.ReadOnlySpan) {
	for _, s := range p.spans.Ended() {
		if s.Name() == name {
			list = append(list, s)
		}
	}
	return list
}

// the is the only ended span of a name.
func (p *process) the(t testing.TB, name string) sdk.ReadOnlySpan {
	t.Helper()
	list := p.named(name)
	if len(list) != 1 {
		t.Fatalf("got %d spans %s, want one", len(list), name)
	}
	return list[0]
}

// wantEnded checks that no span is left open.
func (p *process) wantEnded(t testing.TB, atLeast int) {
	t.Helper()
	begun, ended := len(p.spans.Started()), len(p.spans.Ended())
	if begun != ended || begun < atLeast {
		t.Errorf("%d spans were begun, want at least %d, and %d ended", begun, atLeast, ended)
	}
}

func valueOf(s sdk.ReadOnlySpan, key attribute.Key) attribute.Value {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

func wantInside(t testing.TB, inner, outer sdk.ReadOnlySpan) {
	t.Helper()
	if inner.Parent().SpanID() != outer.SpanContext().SpanID() || inner.SpanContext().TraceID() != outer.SpanContext().TraceID() {
		t.Errorf("%s is not inside %s", inner.Name(), outer.Name())
	}
}

func wantOutcome(t testing.TB, s sdk.ReadOnlySpan, outcome string) {
	t.Helper()
	want(t, "outcome of "+s.Name(), valueOf(s, outcomeKey).AsString(), outcome)
}

// points are the values of a metric by outcome: of a histogram the counts.
func (p *process) points(t testing.TB, name string) map[string]int64 {
	t.Helper()
	points := map[string]int64{}
	for _, m := range p.metrics(t) {
		if m.Name != name {
			continue
		}
		add := func(set attribute.Set, n int64) {
			cache, _ := set.Value("stockade.cache.name")
			want(t, "cache", cache.AsString(), p.opts.Name)
			outcome, _ := set.Value(outcomeKey)
			points[outcome.AsString()] += n
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, d := range data.DataPoints {
				add(d.Attributes, d.Value)
			}
		case metricdata.Histogram[float64]:
			want(t, "unit", m.Unit, "s")
			for _, d := range data.DataPoints {
				add(d.Attributes, int64(d.Count))
			}
		}
	}
	return points
}

func (p *process) metrics(t testing.TB) (list []metricdata.Metrics) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all.ScopeMetrics {
		want(t, "scope", s.Scope.Name, scope)
		list = append(list, s.Metrics...)
	}
	return list
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func inBubble(t *testing.T, f func(t *testing.T, s *redistest.FakeServer)) {
	synctest.Test(t, func(t *testing.T) { f(t, redistest.Fake(t)) })
}

var errSource = errors.New("the source failed")
