package herd

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// cold is the stampede itself: all callers of all processes ask at one moment for a key that nobody has.
func cold() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "cold", Number: "S1", Title: "A cold key",
			About: "Every caller of every process asks at the same moment for one key that is not in Redis. One load would do. " +
				"A round on another key comes before, so that connections and subscriptions exist.",
			Figures: []report.Figure{
				{Name: "loads", Title: "loads", Best: report.Lower, About: "queries of the database"},
				{Name: "p50", Title: "p50", Unit: "ms", Best: report.Lower},
				{Name: "p99", Title: "p99", Unit: "ms", Best: report.Lower},
				{Name: "max", Title: "slowest", Unit: "ms", Best: report.Lower},
				{Name: "over", Title: "p99 ÷ load", Unit: "×", Best: report.Lower},
				{Name: "commands", Title: "commands", Best: report.Lower, About: "sent to Redis by all processes together, without the set-up of connections"},
				{Name: "server", Title: "Redis busy", Unit: "ms", Best: report.Lower, About: "the time that Redis took for them, by INFO commandstats: what scripts call counts twice"},
				{Name: "errors", Title: "errors", Best: report.Lower, About: "callers that got an error or another key's value"},
			},
			Charts: []report.Chart{
				{Name: "loads", Title: "Database queries for one cold key", Kind: report.Bars, Of: "loads", YTitle: "queries", YLog: true},
				{Name: "p99", Title: "Slowest 1 % of the callers", Kind: report.Bars, Of: "p99", YTitle: "ms", YLog: true},
				{Name: "commands", Title: "Commands sent to Redis", Kind: report.Bars, Of: "commands", YTitle: "commands", YLog: true},
			},
		},
		Cases: func(p Profile) []Case {
			all := Contestants()
			if p.Processes+p.Callers != 0 || p.Load != 0 {
				return []Case{coldCase(pick(p.Processes, 4), pick(p.Callers, 250), pick(p.Load, 100*time.Millisecond), p.rounds(3, 5), all)}
			}
			if !p.Full {
				return []Case{coldCase(4, 250, 100*time.Millisecond, p.rounds(1, 1), without(all, "redislock"))} // which takes long
			}
			return []Case{
				coldCase(4, 250, 100*time.Millisecond, p.rounds(1, 5), all),
				coldCase(4, 250, 20*time.Millisecond, p.rounds(1, 5), all),
				coldCase(20, 50, 100*time.Millisecond, p.rounds(1, 2), all),
				coldCase(4, 250, 5*time.Second, p.rounds(1, 1), append([]string{"none"}, sharing...)),
			}
		},
	}
}

func coldCase(processes, callers int, load time.Duration, rounds int, contestants []string) Case {
	return Case{
		Name: fmt.Sprintf("%d × %d callers, load %v", processes, callers, load), Rounds: rounds, Contestants: contestants,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, processes, contestant, peers.Config{TTL: time.Minute, Load: load})
			if err != nil {
				return Result{}, err
			}
			b.Origin.Reset(origin.Settings{Load: 20 * time.Millisecond})
			if _, err := stampede(ctx, fleet, 1, callers); err != nil {
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			if err := b.begin(ctx, origin.Settings{Load: load}); err != nil {
				return Result{}, err
			}
			answers, err := stampede(ctx, fleet, 0, callers)
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			figures := map[string]float64{
				"loads": float64(counts.Loads), "p50": answers.Latency.at(50), "p99": answers.Latency.at(99), "max": answers.Latency.at(100),
				"over": answers.Latency.at(99) / float64(load.Milliseconds()), "commands": float64(answers.sent()), "errors": float64(answers.failed()),
			}
			return answers.result(figures, "latency"), errorsOf(err, b.serverCalls(ctx, figures), answers.err())
		},
	}
}
