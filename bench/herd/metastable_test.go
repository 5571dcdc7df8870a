package herd

import (
	"slices"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/report"
)

func points(ys ...float64) (all []report.Point) {
	for i, y := range ys {
		all = append(all, report.Point{X: float64(i-2) / 2, Y: y}) // from a second before on, every half second
	}
	return all
}

func TestRecoveryOf(t *testing.T) {
	for what, test := range map[string]struct {
		goodput []report.Point
		want    time.Duration
		ok      bool
	}{
		"nothing was lost":           {points(100, 100, 100, 100, 100), 0, true},
		"after a second":             {points(100, 100, 0, 40, 95, 99, 100), time.Second, true},
		"a moment does not count":    {points(100, 100, 0, 99, 50, 96, 96, 96), 1500 * time.Millisecond, true},
		"too near the end":           {points(100, 100, 0, 0, 96, 96), 0, false},
		"never":                      {points(100, 100, 0, 0, 0, 0), 0, false},
		"what was before is no sign": {points(100, 100, 10, 10), 0, false},
	} {
		if got, ok := recoveryOf(test.goodput, 95, time.Second); got != test.want || ok != test.ok {
			t.Errorf("%s: %v, %v, want %v, %v", what, got, ok, test.want, test.ok)
		}
	}
}

func TestGoodput(t *testing.T) {
	got := goodputOf([]Slot{{Good: 10}, {}, {Good: 1, Bad: 3}}, time.Second, 500*time.Millisecond)
	if want := []report.Point{{X: -1, Y: 100}, {X: 0, Y: 25}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := mean(points(0, 0, 10, 20, 30), 0, time.Second); got != 15 {
		t.Errorf("the mean of the first second is %v, want 15", got)
	}
}

// A service with stockade is back soon after its cache was lost; the part that is tested is that it comes back at all.
func TestStockadeRecovers(t *testing.T) {
	result := measured(t, newBench(t), metastableCase(2, 10*time.Second, 1, nil), "stockade")
	if result.Figures["end"] < 90 {
		t.Errorf("%.0f %% of the reads are answered at the end", result.Figures["end"])
	}
}
