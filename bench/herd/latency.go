package herd

import (
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockade-cache/stockade/bench/report"
)

// longest is the latency that a histogram holds at most: what takes longer counts as this.
const longest = time.Minute

// Latency is a histogram of durations, in microseconds. It is safe for concurrent use.
type Latency struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram // guarded by mu
}

func newLatency() *Latency {
	return &Latency{hist: hdrhistogram.New(1, longest.Microseconds(), 3)}
}

func (l *Latency) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.hist.RecordValue(min(max(d.Microseconds(), 1), longest.Microseconds())) // it is within the range
}

func (l *Latency) merge(other *Latency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hist.Merge(other.hist)
}

// Count returns how many durations there are.
func (l *Latency) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.hist.TotalCount())
}

// at returns a percentile in milliseconds: NaN when there is none.
func (l *Latency) at(percent float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hist.TotalCount() == 0 {
		return math.NaN()
	}
	return float64(l.hist.ValueAtPercentile(percent)) / 1e3
}

// distribution is the curve of a chart: which latency (ms) how many of a million answers exceed. Its x axis is the rank
// 1/(1−p), so that 10, 100 and 1000 are p90, p99 and p99.9.
func (l *Latency) distribution() []report.Point {
	n := float64(l.Count())
	var points []report.Point
	for rank := 1.0; n > 0 && rank <= n*1.01; rank *= math.Pow(10, 0.1) {
		points = append(points, report.Point{X: rank, Y: l.at(100 * (1 - 1/rank))})
	}
	return points
}

// MarshalJSON writes all buckets.
func (l *Latency) MarshalJSON() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return json.Marshal(l.hist.Export())
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Latency) UnmarshalJSON(b []byte) error {
	var snapshot hdrhistogram.Snapshot
	if err := json.Unmarshal(b, &snapshot); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hist = hdrhistogram.Import(&snapshot)
	return nil
}
