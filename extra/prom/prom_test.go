package prom

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/stockade-cache/stockade"
)

// series says where each figure of Stats is shown.
var series = map[string]string{
	"Hits": "stockade_reads_total{result=fresh}", "Stale": "stockade_reads_total{result=stale}", "Local": "stockade_reads_total{result=local}",
	"Absent": "stockade_reads_total{result=absent}", "Misses": "stockade_reads_total{result=missing}", "Joined": "stockade_joined_reads_total",
	"Waits": "stockade_waits_total", "Wakes": "stockade_wakes_total", "Polls": "stockade_polls_total",
	"RuledOut": "stockade_guard_ruled_out_total", "GuardErrors": "stockade_guard_errors_total",
	"Loads": "stockade_loads_total", "LoadErrors": "stockade_load_errors_total", "Refreshes": "stockade_refreshes_total", "Skipped": "stockade_refreshes_skipped_total",
	"Rejected": "stockade_rejected_commits_total", "LostLeases": "stockade_lost_leases_total", "Undecodable": "stockade_undecodable_values_total",
	"RedisErrors": "stockade_redis_errors_total", "ChangeErrors": "stockade_change_errors_total",
	"Trips": "stockade_trips_total", "TripKeys": "stockade_trip_keys_total",
	"Flights": "stockade_flights", "Loading": "stockade_loading", "OpenNodes": "stockade_open_nodes",
}

// Every figure of Stats is shown, as itself: whoever adds one meets this test.
func TestEveryFigureOfStats(t *testing.T) {
	var s stockade.Stats
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.CanUint() {
			f.SetUint(uint64(1000 + i))
		} else {
			f.SetInt(int64(1000 + i))
		}
	}
	c := newCache(t, "c")
	c.Watch(counted(s))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	got := scrape(t, registry)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if shown, ok := got[series[name]]; !ok || shown != float64(1000+i) {
			t.Errorf("Stats.%s is %d, and %q shows %v", name, 1000+i, series[name], shown)
		}
	}
}

func TestEvents(t *testing.T) {
	got := scrape(t, fed(t))
	want := map[string]float64{
		"stockade_loads_ended_total{outcome=stored}": 1, "stockade_loads_ended_total{outcome=not_stored}": 1, "stockade_loads_ended_total{outcome=rejected}": 1,
		"stockade_loads_ended_total{outcome=unknown}": 1, "stockade_ignored_keys_total": 1, "stockade_loads_ended_total{outcome=absent}": 1,
		"stockade_loads_ended_total{outcome=failed}": 3, "stockade_loads_ended_total{outcome=timeout}": 1, "stockade_loads_ended_total{outcome=cancelled}": 2,
		"stockade_waits_ended_total{outcome=served}": 1, "stockade_waits_ended_total{outcome=failed}": 1, "stockade_waits_ended_total{outcome=timeout}": 1,
		"stockade_waits_ended_total{outcome=cancelled}":           1,
		"stockade_refreshes_ended_total{outcome=done,when=stale}": 1, "stockade_refreshes_ended_total{outcome=failed,when=stale}": 1,
		"stockade_refreshes_ended_total{outcome=skipped,when=stale}": 1, "stockade_refreshes_ended_total{outcome=done,when=early}": 1,
		"stockade_refreshes_ended_total{outcome=failed,when=early}": 1, "stockade_refreshes_ended_total{outcome=skipped,when=early}": 1,
		"stockade_redis_step_errors_total{op=read}": 1, "stockade_redis_step_errors_total{op=commit}": 1,
		"stockade_misconfigurations_total": 1, "stockade_redis_recoveries_total": 1, "stockade_load_seconds": 11, "stockade_wait_seconds": 4,

		"stockade_locks_taken_total": 4, "stockade_locks_held": 1, "stockade_locks_lost_total": 1, "stockade_lock_held_seconds": 3,
		"stockade_lock_release_errors_total": 1, "stockade_lock_wakes_total": 2, "stockade_lock_polls_total": 3,
		"stockade_lock_waits_ended_total{outcome=taken}": 1, "stockade_lock_waits_ended_total{outcome=given_up}": 1,
		"stockade_lock_waits_ended_total{outcome=cancelled}": 1, "stockade_lock_waits_ended_total{outcome=failed}": 1,
		"stockade_lock_wait_seconds": 4, "stockade_lock_redis_errors_total{op=take}": 1, "stockade_lock_misconfigurations_total": 1,
	}
	for _, name := range series {
		want[name] = 0 // of Stats, which has nothing here
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if shown, ok := got[name]; !ok || shown != want[name] {
			t.Errorf("%s is %v (there: %v), want %v", name, shown, ok, want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is exported and not expected", name)
		}
	}
}

// Times are in seconds, in classic and in native buckets.
func TestHistograms(t *testing.T) {
	c, err := New(Options{Name: "c", Buckets: []float64{0.01, 0.1}})
	if err != nil {
		t.Fatal(err)
	}
	o := c.Observer()
	for _, took := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, time.Minute} {
		o.Load(stockade.LoadEvent{Took: took})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "stockade_load_seconds" })
	h := families[i].GetMetric()[0].GetHistogram()
	if sum := h.GetSampleSum(); math.Abs(sum-60.055) > 1e-9 {
		t.Errorf("sum %v, want 60.055 s", sum)
	}
	var classic []uint64
	for _, b := range h.GetBucket() {
		classic = append(classic, b.GetCumulativeCount())
	}
	if !slices.Equal(classic, []uint64{1, 2}) {
		t.Errorf("classic buckets %v, want 1 and 2 below 10 and 100 ms", classic)
	}
	if len(h.GetPositiveSpan()) == 0 {
		t.Error("no native buckets")
	}
}

func TestNamesByConvention(t *testing.T) {
	problems, err := testutil.GatherAndLint(fed(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestManyInOneRegistry(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	a, b := newCache(t, "a"), newCache(t, "b")
	a.Watch(counted{Hits: 1})
	b.Watch(counted{Hits: 2})
	registry.MustRegister(a, b, newLocker(t, "a"), newLocker(t, "b"))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP stockade_joined_reads_total Of the missing reads: those that shared the load or wait of another call.
		# TYPE stockade_joined_reads_total counter
		stockade_joined_reads_total{cache="a"} 0
		stockade_joined_reads_total{cache="b"} 0
		# HELP stockade_locks_held Locks that are held.
		# TYPE stockade_locks_held gauge
		stockade_locks_held{locker="a"} 0
		stockade_locks_held{locker="b"} 0
	`), "stockade_joined_reads_total", "stockade_locks_held"); err != nil {
		t.Error(err)
	}
	var already prometheus.AlreadyRegisteredError
	if err := registry.Register(newCache(t, "a")); !errors.As(err, &already) || already.ExistingCollector != prometheus.Collector(a) {
		t.Errorf("a second cache of one name: %v, want AlreadyRegisteredError", err)
	}
	if err := registry.Register(newLocker(t, "b")); !errors.As(err, &already) {
		t.Errorf("a second locker of one name: %v, want AlreadyRegisteredError", err)
	}
}

// What nobody counts is not shown as zero.
func TestBeforeWatch(t *testing.T) {
	c := newCache(t, "c")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	c.Observer().Redis(stockade.RedisEvent{Op: "read", Err: errOther})
	got := scrape(t, registry)
	if len(got) != 6 || got["stockade_redis_step_errors_total{op=read}"] != 1 {
		t.Errorf("before Watch: %v", got)
	}
	const hits = "stockade_reads_total{result=fresh}"
	for _, want := range []uint64{7, 3} {
		c.Watch(counted{Hits: want})
		if got := scrape(t, registry)[hits]; got != float64(want) {
			t.Errorf("%s is %v, want %d", hits, got, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Watch took a nil, which scrapes would meet")
		}
		if got := scrape(t, registry)[hits]; got != 3 {
			t.Errorf("after a Watch that panicked %s is %v", hits, got)
		}
	}()
	c.Watch((*stockade.Cache[string])(nil))
}

func TestOptions(t *testing.T) {
	for _, bad := range []struct {
		opts Options
		want string
	}{
		{Options{}, `Name is ""`},
		{Options{Name: "a\xff"}, `Name is "a\xff"`},
		{Options{Name: "a", Buckets: []float64{0, 1}}, "Buckets is [0 1]"},
		{Options{Name: "a", Buckets: []float64{1, 1}}, "Buckets is [1 1]"},
		{Options{Name: "a", Buckets: []float64{math.NaN()}}, "Buckets is [NaN]"},
		{Options{Name: "a", Buckets: []float64{1, math.NaN()}}, "Buckets is [1 NaN]"},
	} {
		if _, err := New(bad.opts); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("New(%+v): %v, want %s", bad.opts, err, bad.want)
		}
		if _, err := NewLocker(bad.opts); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("NewLocker(%+v): %v, want %s", bad.opts, err, bad.want)
		}
	}
}
