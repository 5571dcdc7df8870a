package prom

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// Two processes and a holder of locks, of which every figure is known.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 100 * time.Millisecond
		s := redistest.Fake(t)
		registry := prometheus.NewPedanticRegistry()
		open := func(name string) *stockade.Cache[string] {
			m := newCache(t, name)
			c, err := stockade.New[string](s.Client(t), stockade.Options{
				Prefix: "test", Observer: m.Observer(), Jitter: -1, EarlyRefresh: -1, TTL: time.Minute, StaleFor: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			m.Watch(c.With(stockade.Policy{TTL: time.Hour})) // any view
			registry.MustRegister(m)
			return c
		}
		a, b := open("a"), open("b")
		slow := func(v string, err error) stockade.Loader[string] {
			return func(context.Context) (string, error) { time.Sleep(takes); return v, err }
		}
		var wg sync.WaitGroup
		for _, c := range []*stockade.Cache[string]{a, a, a, b, b} {
			wg.Go(func() {
				if c == b {
					time.Sleep(takes / 2)
				}
				if v, err := c.Get(t.Context(), "k", slow("v", nil)); v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		time.Sleep(takes * 3 / 4)
		synctest.Wait()
		expect(t, registry, "while a loads and b waits", map[string]float64{"a/stockade_loading": 1, "a/stockade_flights": 1, "b/stockade_loading": 0, "b/stockade_flights": 1})
		wg.Wait()
		_, _ = a.Get(t.Context(), "k", slow("", nil))
		_, _ = a.Get(t.Context(), "none", slow("", stockade.ErrNotFound))
		_, _ = a.Get(t.Context(), "none", slow("", nil))
		if _, err := a.Get(t.Context(), "bad", slow("", errOther)); !errors.Is(err, errOther) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		_, _ = a.Get(t.Context(), "k", slow("new", nil))
		time.Sleep(2 * takes)
		expect(t, registry, "in the end", map[string]float64{
			"a/stockade_reads_total{result=missing}": 5, "a/stockade_joined_reads_total": 2, "a/stockade_reads_total{result=fresh}": 1,
			"a/stockade_reads_total{result=absent}": 1, "a/stockade_reads_total{result=stale}": 1, "a/stockade_loads_total": 4,
			"a/stockade_load_errors_total": 1, "a/stockade_refreshes_total": 1, "a/stockade_refreshes_ended_total{outcome=done,when=stale}": 1,
			"a/stockade_loads_ended_total{outcome=stored}": 2, "a/stockade_loads_ended_total{outcome=absent}": 1, "a/stockade_loads_ended_total{outcome=failed}": 1,
			"a/stockade_loading": 0, "a/stockade_flights": 0, "a/stockade_waits_total": 0, "a/stockade_redis_errors_total": 0,
			"b/stockade_reads_total{result=missing}": 2, "b/stockade_joined_reads_total": 1, "b/stockade_waits_total": 1,
			"b/stockade_waits_ended_total{outcome=served}": 1, "b/stockade_loads_total": 0,
		})
	})
}

// A lock that is released, one that is waited for, and one that is lost.
func TestLiveLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		m := newLocker(t, "l")
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m)
		l, err := stockade.NewLocker(s.Client(t), stockade.LockOptions{Prefix: "test", TTL: time.Second, Observer: m.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		k, err := l.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, registry, "held", map[string]float64{"l/stockade_locks_held": 1, "l/stockade_locks_taken_total": 1})
		time.AfterFunc(500*time.Millisecond, func() { _ = k.Unlock(context.Background()) })
		second, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		s.Mini.FlushAll()
		<-second.Context().Done()
		time.Sleep(time.Second)
		expect(t, registry, "lost", map[string]float64{
			"l/stockade_locks_held": 0, "l/stockade_locks_taken_total": 2, "l/stockade_locks_lost_total": 1, "l/stockade_lock_held_seconds": 2,
			"l/stockade_lock_waits_ended_total{outcome=taken}": 1, "l/stockade_lock_release_errors_total": 0,
		})
	})
}

// expect looks at series, whose names have the constant label before them.
func expect(t *testing.T, g prometheus.Gatherer, when string, want map[string]float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "cache" || l.GetName() == "locker" {
					of = l.GetValue()
				}
			}
			got[of+"/"+f.GetName()+labelsOf(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %s is %v, want %v", when, name, got[name], value)
		}
	}
}
