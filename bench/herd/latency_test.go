package herd

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func latencyOf(durations ...time.Duration) *Latency {
	l := newLatency()
	for _, d := range durations {
		l.add(d)
	}
	return l
}

func TestLatency(t *testing.T) {
	l := newLatency()
	for ms := 1; ms <= 1000; ms++ {
		l.add(time.Duration(ms) * time.Millisecond)
	}
	for percent, want := range map[float64]float64{50: 500, 99: 990, 99.9: 999, 100: 1000} {
		if got := l.at(percent); math.Abs(got-want) > want/500 {
			t.Errorf("p%v is %v ms, want %v", percent, got, want)
		}
	}
	if got := newLatency().at(50); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
	// What is outside of its range is counted at its ends.
	if l := latencyOf(0, 2*longest); l.Count() != 2 || l.at(100) < 59_000 {
		t.Errorf("%d durations up to %v ms", l.Count(), l.at(100))
	}
}

func TestLatencyCrossesProcesses(t *testing.T) {
	sent := latencyOf(time.Millisecond, 5*time.Millisecond, 5*time.Second)
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got Latency
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	got.merge(latencyOf(time.Second, time.Second))
	if got.Count() != 5 || got.at(100) != sent.at(100) || math.Abs(got.at(60)-1000) > 2 {
		t.Errorf("%d durations, p60 %v ms, at most %v ms", got.Count(), got.at(60), got.at(100))
	}
	if err := json.Unmarshal([]byte(`{"Counts": "no"}`), &got); err == nil {
		t.Error("nonsense was read")
	}
}

// The curve ends with the slowest, and begins with the fastest.
func TestDistribution(t *testing.T) {
	l := newLatency()
	for ms := 1; ms <= 1000; ms++ {
		l.add(time.Duration(ms) * time.Millisecond)
	}
	points := l.distribution()
	first, last := points[0], points[len(points)-1]
	if first.X != 1 || first.Y > 2 || math.Abs(last.X-1000) > 1 || last.Y < 998 {
		t.Errorf("the curve goes from %v to %v", first, last)
	}
	for i, p := range points[1:] {
		if p.X <= points[i].X || p.Y < points[i].Y {
			t.Errorf("the curve goes from %v to %v", points[i], p)
		}
	}
	if got := newLatency().distribution(); got != nil {
		t.Errorf("the curve of nothing is %v", got)
	}
}
