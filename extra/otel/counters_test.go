package otel

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// fixed has the Stats that it is.
type fixed stockade.Stats

func (f *fixed) Stats() stockade.Stats { return stockade.Stats(*f) }

// Every field of Stats is in a metric, once.
func TestAllStatsAreMetrics(t *testing.T) {
	var s fixed
	left := map[int64]string{}
	for v, i := reflect.ValueOf(&s).Elem(), 0; i < v.NumField(); i++ {
		n := int64(1000 + i)
		left[n] = v.Type().Field(i).Name
		v.Field(i).Set(reflect.ValueOf(n).Convert(v.Field(i).Type()))
	}
	p := newProcess(t)
	want(t, "watch", p.Watch(&s), nil)
	for _, m := range p.metrics(t) {
		sum, ok := m.Data.(metricdata.Sum[int64])
		if !ok {
			t.Errorf("%s is a %T", m.Name, m.Data)
			continue
		}
		for _, d := range sum.DataPoints {
			field, ok := left[d.Value]
			if !ok {
				t.Errorf("%s has %d, which is no field or told twice", m.Name, d.Value)
			}
			delete(left, d.Value)
			kind, _ := reflect.TypeFor[stockade.Stats]().FieldByName(field)
			want(t, field+" only grows", sum.IsMonotonic, kind.Type.Kind() == reflect.Uint64) // gauges have a sign
		}
	}
	if len(left) > 0 {
		t.Errorf("in no metric: %v", slices.Sorted(maps.Values(left)))
	}
}

// The metrics of a cache say exactly what it has done, and durations count every span once.
func TestMetricsAreExact(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		p := newProcess(t)
		c, other := p.cache(t, s), newProcess(t).cache(t, s)
		want(t, "watch", p.Watch(c), nil)
		load := func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil }
		get := func(key string, load stockade.Loader[string]) { _, _ = c.Get(t.Context(), key, load) }
		for range 3 {
			get("hit", load)
		}
		get("failed", func(context.Context) (string, error) { return "", errSource })
		get("absent", func(context.Context) (string, error) { return "", stockade.ErrNotFound })
		get("absent", load)
		get("rejected", func(ctx context.Context) (string, error) { return "v", c.Invalidate(ctx, "rejected") })
		_, _ = c.GetMany(t.Context(), []string{"a", "b", "hit"}, func(context.Context, []string) (map[string]string, error) {
			return map[string]string{"a": "v", "b": "v"}, nil
		})
		go func() { _, _ = other.Get(t.Context(), "held", load) }()
		synctest.Wait()
		get("held", load)
		for name, points := range map[string]map[string]int64{
			"stockade.reads":           {"hit": 3, "miss": 7, "absent": 1, "stale": 0, "local": 0},
			"stockade.loads":           {"": 5},
			"stockade.load.errors":     {"": 1},
			"stockade.waits":           {"": 1},
			"stockade.commit.rejected": {"": 1},
			"stockade.loads.active":    {"": 0},
			"stockade.load.duration":   {"ok": 3, "failed": 1, "absent": 1},
			"stockade.wait.duration":   {"ok": 1},
			"stockade.commit.duration": {"stored": 3, "rejected": 1, "not_stored": 1},
		} {
			if got := p.points(t, name); !maps.Equal(got, points) {
				t.Errorf("%s: got %v, want %v", name, got, points)
			}
		}
		for _, m := range p.metrics(t) {
			if m.Name == "stockade.wait.duration" {
				want(t, "seconds that were waited", m.Data.(metricdata.Histogram[float64]).DataPoints[0].Sum, 1)
			}
			if m.Unit == "" || !strings.HasSuffix(m.Description, ".") {
				t.Errorf("%s has the unit %q and the description %q", m.Name, m.Unit, m.Description)
			}
		}
	})
}

// Caches of one process have metrics of one name, and their own attribute. Close takes a cache's away, and lets go of it.
func TestWatchAndClose(t *testing.T) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	with := func(name string) *process {
		p := newProcess(t, func(o *Options) { o.Name, o.MeterProvider = name, provider })
		p.reader = reader
		return p
	}
	a, b := with("a"), with("b")
	loads := func() map[string]int64 {
		got := map[string]int64{}
		for _, m := range a.metrics(t) {
			if m.Name == "stockade.loads" {
				for _, d := range m.Data.(metricdata.Sum[int64]).DataPoints {
					name, _ := d.Attributes.Value("stockade.cache.name")
					got[name.AsString()] = d.Value
				}
			}
		}
		return got
	}
	wantLoads := func(want map[string]int64) {
		t.Helper()
		if got := loads(); !maps.Equal(got, want) {
			t.Errorf("loads: got %v, want %v", got, want)
		}
	}
	wantLoads(map[string]int64{})
	want(t, "watch", a.Watch(&fixed{Loads: 1}), nil)
	want(t, "watch", b.Watch(&fixed{Loads: 2}), nil)
	wantLoads(map[string]int64{"a": 1, "b": 2})
	if err := a.Watch(&fixed{}); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("watching twice: %v", err)
	}
	want(t, "close", a.Close(), nil)
	want(t, "close again", a.Close(), nil)
	wantLoads(map[string]int64{"b": 2})
	if err := a.Watch(&fixed{}); err == nil {
		t.Error("a closed Telemetry watches")
	}
	for _, none := range []Source{nil, (*fixed)(nil)} {
		if err := with("c").Watch(none); err == nil {
			t.Errorf("watches a %T that is nil", none)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for says, opts := range map[string]Options{
		`Options.Name is ""`: {},
		"Options.Reads is 2": {Name: "users", Reads: 2},
	} {
		if _, err := New(opts); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	if _, err := New(Options{Name: "users"}); err != nil {
		t.Errorf("with the global providers: %v", err)
	}
}
