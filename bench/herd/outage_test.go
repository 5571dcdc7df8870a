package herd

import (
	"math"
	"os/exec"
	"testing"
	"time"
)

func TestOutage(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("a miniredis cannot be frozen:", err)
	}
	b := newBench(t)
	size := outageSize{
		processes: 2, rate: 200, load: 20 * time.Millisecond,
		normal: 300 * time.Millisecond, frozen: time.Second, thawed: 500 * time.Millisecond, dead: 700 * time.Millisecond, empty: 700 * time.Millisecond,
	}
	t.Run("stockade", func(t *testing.T) {
		result := measured(t, b, outageCase(size, 1, nil), "stockade")
		got := result.Figures
		if got["frozenErrors"] != 0 || got["deadErrors"] != 0 {
			t.Errorf("%v and %v errors, want none", got["frozenErrors"], got["deadErrors"])
		}
		if got["frozenAnswered"] < 80 || got["deadAnswered"] < 90 {
			t.Errorf("%v and %v %% were answered", got["frozenAnswered"], got["deadAnswered"])
		}
		if got["deadLoads"] == 0 || got["deadPeak"] > 2*64 {
			t.Errorf("%v loads, %v at once", got["deadLoads"], got["deadPeak"])
		}
		if n := len(result.Series["answered"]); n < 30 || n > 32 {
			t.Errorf("%d points in 3.2 s", n)
		}
	})
	t.Run("rockscache", func(t *testing.T) { // it does not load without Redis
		result, err := b.measure(t.Context(), outageCase(size, 1, nil), "rockscache")
		if err == nil || result.Figures["deadAnswered"] > 50 || result.Figures["deadErrors"] == 0 {
			t.Errorf("%v, %v: want errors while Redis is dead", err, result.Figures)
		}
		t.Log(err, result.Figures)
	})
	if err := b.Redis.clean(t.Context()); err != nil {
		t.Error("after the outages:", err)
	}
}

func TestOutageOfForeignServer(t *testing.T) {
	b := newBench(t)
	foreign, err := UseRedis(t.Context(), b.Redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	ours := b.Redis
	b.Redis = foreign
	defer func() { b.Redis = ours }()
	if _, err := b.measure(t.Context(), outageCase(outageSize{}, 1, nil), "none"); err != errNotOurs {
		t.Errorf("got %v, want %v", err, errNotOurs)
	}
	if err := ours.clean(t.Context()); err != nil {
		t.Error("the server was touched:", err)
	}
}

func TestSumUp(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	reads := []Read{
		{Version: 1, At: at(9), Took: time.Second}, // before
		{Version: 1, At: at(10), Took: 2 * time.Millisecond},
		{Version: 3, At: at(11), Took: 4 * time.Millisecond},
		{At: at(12), Failed: true},
		{At: at(19)},                                // late
		{Version: 1, At: at(20), Took: time.Second}, // after
	}
	got := sumUp(reads, at(10), at(20))
	if got.answered != 50 || got.failed != 1 || got.good.Count() != 2 || math.Round(got.good.at(100)) != 4 {
		t.Errorf("%v %% answered, %d failed, %d good, slowest %v ms", got.answered, got.failed, got.good.Count(), got.good.at(100))
	}
	if none := sumUp(reads, at(30), at(40)); !math.IsNaN(none.answered) {
		t.Errorf("%v %% of no reads were answered", none.answered)
	}
}

func TestBackAfter(t *testing.T) {
	good, bad, nearly := Slot{Good: 500}, Slot{Good: 400, Bad: 100}, Slot{Good: 99, Bad: 1}
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		slots    []Slot
		from, to time.Duration
		want     time.Duration
		ok       bool
	}{
		"at once":               {[]Slot{bad, bad, good, good}, 200 * ms, 450 * ms, 0, true},
		"good in that slot":     {[]Slot{bad, good, good, good}, 150 * ms, 450 * ms, 0, true},
		"within a slot":         {[]Slot{bad, bad, good, good}, 150 * ms, 450 * ms, 50 * ms, true},
		"later":                 {[]Slot{bad, bad, bad, good}, 100 * ms, 450 * ms, 200 * ms, true},
		"not for good at first": {[]Slot{bad, good, bad, good}, 100 * ms, 450 * ms, 200 * ms, true},
		"99 % will do":          {[]Slot{bad, nearly, nearly}, 100 * ms, 350 * ms, 0, true},
		"98 % will not":         {[]Slot{good, {Good: 985, Bad: 10}, good}, 0, 350 * ms, 200 * ms, true},
		"never":                 {[]Slot{bad, good, bad, good}, 100 * ms, 350 * ms, 0, false},
		"the next state":        {[]Slot{good, good, bad}, 0, 301 * ms, 0, true},
		"more time than slots":  {[]Slot{bad, good}, 50 * ms, time.Second, 50 * ms, true},
		"nothing is known":      {nil, 100 * ms, 200 * ms, 0, false},
	} {
		if got, ok := backAfter(tc.slots, tc.from, tc.to); got != tc.want || ok != tc.ok {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got, ok, tc.want, tc.ok)
		}
	}
}
