package herd

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// unjittered is stockade whose keys live exactly for their TTL. It takes part here alone.
const unjittered = "stockade no jitter"

// window is what the loads over time are counted in.
const window = 100 * time.Millisecond

// avalanche is what comes a TTL after very many keys were written together.
func avalanche() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "avalanche", Number: "S9", Title: "Keys that were written together",
			About: "Many keys are written at the same moment, as after a deployment, and are then read evenly. A TTL later all are missing at once, and the " +
				"database is asked for all of them in the time that it takes to read each once. Jitter, which makes every TTL shorter by up to a tenth, spreads " +
				"that over a tenth of the TTL, and further each time: here the TTL is some seconds, so that there is something to see within a short run. " +
				"With a TTL of five minutes the peak would be lower by as much as that is longer. \"" + unjittered + "\" is stockade with its jitter switched off. " +
				"rockscache has jitter too, but counts in whole seconds, which swallows a tenth of a TTL as short as this one.",
			Figures: []report.Figure{
				{Name: "peak", Title: "peak", Unit: "loads", Best: report.Lower, About: "in the worst tenth of a second"},
				{Name: "even", Title: "peak ÷ even", Unit: "×", Best: report.Lower, About: "against what it would be if each key were loaded once in a TTL, evenly"},
				{Name: "loads", Title: "loads", Best: report.Lower},
				{Name: "p50", Title: "p50", Unit: "ms", Best: report.Lower},
				{Name: "p99", Title: "p99", Unit: "ms", Best: report.Lower},
				{Name: "p999", Title: "p99.9", Unit: "ms", Best: report.Lower},
				{Name: "errors", Title: "errors", Best: report.Lower},
			},
			Charts: []report.Chart{
				{Name: "loads", Title: "Database queries after many keys were written together", Kind: report.Lines, Of: "loads",
					XTitle: "seconds after they were written", YTitle: "queries in 100 ms"},
				{Name: "peak", Title: "Queries in the worst tenth of a second", Kind: report.Bars, Of: "peak", YTitle: "queries in 100 ms"},
			},
		},
		Cases: func(p Profile) []Case {
			a := falling{processes: pick(p.Processes, 2), keys: 800, rate: 8000, ttl: 3 * time.Second, lasts: pick(p.Duration, 4*time.Second), load: pick(p.Load, 2*time.Millisecond)}
			if p.Full {
				a.keys, a.ttl, a.lasts = 10_000, 30*time.Second, pick(p.Duration, 70*time.Second)
				return []Case{avalancheCase(a, p.rounds(1, 1), []string{"none", "rockscache", unjittered, "stockade"})}
			}
			return []Case{avalancheCase(a, p.rounds(1, 1), []string{"none", unjittered, "stockade"})}
		},
	}
}

// falling is the size of an avalanche.
type falling struct {
	processes, keys int
	rate            float64 // reads a second, of all processes together
	ttl, lasts      time.Duration
	load            time.Duration
}

func avalancheCase(a falling, rounds int, contestants []string) Case {
	return Case{
		Name:   fmt.Sprintf("%d keys, %.0f reads a second, TTL %v", a.keys, a.rate, a.ttl),
		Rounds: rounds, Contestants: contestants, Limit: a.lasts + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			config := peers.Config{TTL: a.ttl, Load: a.load}
			var change []func(*Setup)
			if contestant == unjittered {
				config.NoJitter = true
				change = append(change, as("stockade"))
			}
			fleet, err := b.fleet(ctx, a.processes, contestant, config, change...)
			if err != nil {
				return Result{}, err
			}
			b.Origin.Reset(origin.Settings{Load: a.load})
			if _, err := stampede(ctx, fleet, a.keys, 10); err != nil {
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			if err := b.begin(ctx, origin.Settings{Load: a.load}); err != nil {
				return Result{}, err
			}
			written := time.Now()
			if _, err := filling.on(ctx, fleet[0], fillParams{Keys: a.keys}); err != nil {
				return Result{}, err
			}
			arrived, err := arrive(ctx, fleet, Arrivals{Rate: a.rate / float64(a.processes), Keys: a.keys, Lasts: a.lasts - time.Since(written)})
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			series := overTime(counts.Begun, written, a.lasts)
			peak := highest(series)
			answers := arrived.Answers
			figures := map[string]float64{
				"peak": peak, "even": peak / (float64(a.keys) * window.Seconds() / a.ttl.Seconds()), "loads": float64(counts.Loads),
				"p50": answers.Latency.at(50), "p99": answers.Latency.at(99), "p999": answers.Latency.at(99.9), "errors": float64(answers.failed()),
			}
			result := answers.result(figures, "latency")
			result.Series["loads"] = series
			return result, errorsOf(err, answers.err())
		},
	}
}

// as opens a contestant under another name.
func as(contestant string) func(*Setup) {
	return func(s *Setup) { s.Contestant = contestant }
}

// overTime counts loads in windows, from a time on. X is the middle of a window in seconds.
func overTime(begun []origin.Begun, from time.Time, lasts time.Duration) []report.Point {
	points := make([]report.Point, (lasts+window-1)/window)
	for i := range points {
		points[i].X = (float64(i) + 0.5) * window.Seconds()
	}
	for _, load := range begun {
		if i := int(load.At.Sub(from) / window); load.At.After(from) && i < len(points) {
			points[i].Y++
		}
	}
	return points
}

func highest(points []report.Point) float64 {
	most := 0.0
	for _, point := range points {
		most = max(most, point.Y)
	}
	return most
}
