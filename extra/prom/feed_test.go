package prom

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stockade-cache/stockade"
)

// counted is a Source.
type counted stockade.Stats

func (c counted) Stats() stockade.Stats { return stockade.Stats(c) }

func newCache(t testing.TB, name string) *Cache {
	t.Helper()
	c, err := New(Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newLocker(t testing.TB, name string) *Locker {
	t.Helper()
	l, err := NewLocker(Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fed returns a registry with everything that can be exported.
func fed(t testing.TB) *prometheus.Registry {
	t.Helper()
	c, l := newCache(t, "c"), newLocker(t, "l")
	c.Watch(counted{})
	feedCache(c.Observer())
	feedLocker(l.Observer())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c, l)
	return registry
}

var (
	errOther = errors.New("other")
	failures = []error{
		fmt.Errorf("x: %w", stockade.ErrNotFound), &stockade.LoadError{Err: errOther}, &stockade.LoadError{Err: stockade.ErrLoadTimeout},
		stockade.ErrClosed, &stockade.LoadError{Err: context.Canceled}, // and a panic is a failure, whatever it panicked with:
		&stockade.LoadError{Err: &stockade.PanicError{Value: stockade.ErrNotFound}}, &stockade.LoadError{Err: &stockade.PanicError{Value: context.Canceled}},
	}
)

// feedCache tells of one event of each kind.
func feedCache(o stockade.Observer) {
	for outcome := stockade.Stored; outcome <= stockade.Ignored; outcome++ {
		o.Load(stockade.LoadEvent{Took: 20 * time.Millisecond, Outcome: outcome})
	}
	o.Wait(stockade.WaitEvent{Took: time.Second})
	for _, err := range failures {
		o.Load(stockade.LoadEvent{Took: time.Second, Err: err, Outcome: stockade.NotStored})
	}
	for _, err := range failures[1:4] {
		o.Wait(stockade.WaitEvent{Took: time.Second, Err: err})
	}
	for _, early := range []bool{false, true} {
		o.Refresh(stockade.RefreshEvent{Early: early})
		o.Refresh(stockade.RefreshEvent{Early: early, Err: errOther})
		o.Refresh(stockade.RefreshEvent{Early: early, Skipped: true})
	}
	o.Redis(stockade.RedisEvent{Op: "read", Err: errOther, Open: true})
	o.Redis(stockade.RedisEvent{Op: "commit", Err: errOther, Misconfigured: true})
	o.Redis(stockade.RedisEvent{Op: "probe"})
}

// feedLocker tells of three locks: one is released, one is lost, and one is still held.
func feedLocker(o stockade.Observer) {
	for range 4 {
		o.Lock(stockade.LockEvent{Kind: stockade.LockTaken})
	}
	o.Lock(stockade.LockEvent{Kind: stockade.LockReleased, Held: time.Second})
	o.Lock(stockade.LockEvent{Kind: stockade.LockReleased, Held: time.Second, Err: errOther})
	o.Lock(stockade.LockEvent{Kind: stockade.LockLost, Held: 2 * time.Second})
	o.Wait(stockade.WaitEvent{Took: time.Second, Wakes: 2, Polls: 3})
	o.Wait(stockade.WaitEvent{Took: time.Second, Err: fmt.Errorf("%w: %w", stockade.ErrLocked, context.DeadlineExceeded)})
	o.Wait(stockade.WaitEvent{Took: time.Second, Err: stockade.ErrClosed})
	o.Wait(stockade.WaitEvent{Took: time.Second, Err: stockade.ErrRedis})
	o.Redis(stockade.RedisEvent{Op: "take", Err: errOther, Misconfigured: true})
	o.Redis(stockade.RedisEvent{Op: "probe"})
}

// scrape returns what is exported: the value of each series, of a histogram how much it has observed.
func scrape(t testing.TB, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()+labelsOf(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// labelsOf writes labels but the constant one.
func labelsOf(m *dto.Metric) string {
	text := ""
	for _, l := range m.GetLabel() {
		if l.GetName() != "cache" && l.GetName() != "locker" {
			text += fmt.Sprintf(",%s=%s", l.GetName(), l.GetValue())
		}
	}
	if text == "" {
		return ""
	}
	return "{" + text[1:] + "}"
}
