package herd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// waiters is a slow load that very many want.
func waiters() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "waiters", Number: "S7", Title: "Many wait for one load",
			About: "One process loads a key for some seconds. Meanwhile very many callers of another process ask for it. Memory is what the waiting process " +
				"has in use more than before, heap and stacks, after a garbage collection in the middle of the load: a caller's own goroutine takes 2 KB of it " +
				"and a little of the heap. Latency counts from the end of the load. A caller gives up 10 s after that.",
			Figures: []report.Figure{
				{Name: "memory", Title: "memory a waiter", Unit: "KB", Best: report.Lower, About: "heap and stacks, the caller's goroutine included"},
				{Name: "heap", Title: "of it heap", Unit: "KB", Best: report.Lower},
				{Name: "goroutines", Title: "goroutines a waiter", Best: report.Lower, About: "1 is the caller's own"},
				{Name: "commands", Title: "commands", Best: report.Lower, About: "sent by the waiting process, until all had an answer"},
				{Name: "p50", Title: "p50", Unit: "ms", Best: report.Lower, About: "after the load ended"},
				{Name: "p99", Title: "p99", Unit: "ms", Best: report.Lower, About: "after the load ended"},
				{Name: "answered", Title: "answered", Unit: "%", Best: report.Higher},
				{Name: "loads", Title: "loads", Best: report.Lower, About: "of both processes"},
			},
			Charts: []report.Chart{
				{Name: "memory", Title: "Memory that a waiting caller takes", Kind: report.Bars, Of: "memory", YTitle: "KB"},
				{Name: "commands", Title: "Commands sent by those who wait", Kind: report.Bars, Of: "commands", YTitle: "commands", YLog: true},
				{Name: "p99", Title: "Slowest 1 % after the load ended", Kind: report.Bars, Of: "p99", YTitle: "ms", YLog: true},
			},
		},
		Cases: func(p Profile) []Case {
			callers, load := pick(p.Callers, 10_000), pick(p.Load, 3*time.Second)
			if p.Full {
				return []Case{waitersCase(callers, load, p.rounds(1, 1), without(Contestants(), "redsync", "redislock"))} // of whose waiters hardly any is answered
			}
			return []Case{waitersCase(callers, pick(p.Load, 2*time.Second), p.rounds(1, 1), []string{"singleflight", "rockscache", "rueidisaside", "stockade"})}
		},
	}
}

func waitersCase(callers int, load time.Duration, rounds int, contestants []string) Case {
	return Case{
		Name: fmt.Sprintf("%d callers, load %v", callers, load), Rounds: rounds, Contestants: contestants, Limit: load + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, 2, contestant, peers.Config{TTL: time.Minute, Load: load})
			if err != nil {
				return Result{}, err
			}
			b.Origin.Reset(origin.Settings{Load: 20 * time.Millisecond})
			if _, err := stampede(ctx, fleet, 1, 10); err != nil {
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			if err := b.begin(ctx, origin.Settings{Load: load}); err != nil {
				return Result{}, err
			}
			got, err := crowdOf(ctx, b, fleet, callers, load)
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			n := float64(callers)
			figures := map[string]float64{
				"memory": float64(got.Took.Heap+got.Took.Stacks) / n / 1e3, "heap": float64(got.Took.Heap) / n / 1e3,
				"goroutines": float64(got.Took.Goroutines) / n, "commands": float64(got.Answers.sent()),
				"p50": got.Answers.Latency.at(50), "p99": got.Answers.Latency.at(99),
				"answered": 100 * float64(got.Answers.Latency.Count()) / n, "loads": float64(counts.Loads),
			}
			return got.Answers.result(figures, "latency"), errorsOf(err, got.Answers.err())
		},
	}
}

// crowdOf has the first process load, and callers of the second wait for it.
func crowdOf(ctx context.Context, b *Bench, f Fleet, callers int, load time.Duration) (got *crowd, err error) {
	loaded := make(chan error, 1)
	go func() {
		answers, err := stampeding.on(ctx, f[0], stampedeParams{ID: 0, Callers: 1, At: time.Now()})
		if err == nil {
			err = answers.err()
		}
		loaded <- err
	}()
	defer func() { err = errorsOf(err, <-loaded) }()
	for until := time.Now().Add(5 * time.Second); b.Origin.Counts().Loads == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) || ctx.Err() != nil {
			return nil, errors.New("the first process does not load")
		}
	}
	begun := b.Origin.Counts().Begun[0].At
	return crowding.on(ctx, f[1], crowdParams{ID: 0, Callers: callers, Look: begun.Add(load * 2 / 3), Ends: begun.Add(load)})
}
