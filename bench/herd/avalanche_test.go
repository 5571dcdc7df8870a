package herd

import (
	"slices"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/report"
)

func TestOverTime(t *testing.T) {
	from := time.Now()
	at := func(d time.Duration) origin.Begun { return origin.Begun{At: from.Add(d)} }
	begun := []origin.Begun{
		at(-time.Second), at(-1), at(time.Millisecond), at(99 * time.Millisecond),
		at(100 * time.Millisecond), at(249 * time.Millisecond), at(300 * time.Millisecond), at(time.Hour),
	}
	got := overTime(begun, from, 250*time.Millisecond)
	counts := func(points []report.Point) (n []float64) {
		for _, p := range points {
			n = append(n, p.Y)
		}
		return n
	}
	if want := []float64{2, 1, 1}; !slices.Equal(counts(got), want) {
		t.Errorf("%v, want %v", counts(got), want)
	}
	if got[1].X < 0.149 || got[1].X > 0.151 {
		t.Errorf("the second window is at %v s", got[1].X)
	}
	if most := highest(got); most != 2 {
		t.Errorf("the highest is %v, want 2", most)
	}
}

// All keys expire once. Without jitter nothing is loaded before.
func TestAvalanche(t *testing.T) {
	t.Parallel() // it mostly waits
	b := newBench(t)
	a := falling{processes: 2, keys: 50, rate: 1000, ttl: time.Second, lasts: 1500 * time.Millisecond, load: time.Millisecond}
	for _, contestant := range []string{"none", unjittered, "stockade"} {
		got := measured(t, b, avalancheCase(a, 1, nil), contestant)
		loads, points := got.Figures["loads"], got.Series["loads"]
		if loads < 50 || contestant != "none" && loads > 50 {
			t.Errorf("%s: %v loads of 50 keys", contestant, loads)
		}
		early := 0.0
		for _, p := range points {
			if p.X < 0.9 {
				early += p.Y
			}
		}
		if early > 0 {
			t.Errorf("%s: %v loads before a value can have expired", contestant, early)
		}
	}
}
