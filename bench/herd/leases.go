package herd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// leases is the experiment of section 3.2.1 of "Scaling Memcache at Facebook" (NSDI 2013): keys that are read and written
// all the time. Leases took the peak rate of the database from 17,000 queries a second to 1,300.
func leases() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "leases", Number: "S10", Title: "Hot keys that are written all the time",
			About: "The experiment with which Facebook showed its leases: 50 hot keys, each read 280 times and, at random times, invalidated once a second, and a load takes 60 ms, " +
				"give or take half. A read is stale when it begins after Invalidate has returned and gets an older value; an old value is kept when that still " +
				"happens a quarter of a second later: a load that had begun before the write has stored what it read.",
			Figures: []report.Figure{
				{Name: "rate", Title: "loads a second", Best: report.Lower},
				{Name: "fewer", Title: "fewer than none", Unit: "×", Best: report.Higher, About: "loads of no protection in the same round, divided by these"},
				{Name: "stale", Title: "stale reads", Unit: "%", Best: report.Lower},
				{Name: "kept", Title: "old values kept", Best: report.Lower, About: "of all invalidations"},
				{Name: "p99", Title: "p99", Unit: "ms", Best: report.Lower},
				{Name: "errors", Title: "errors", Best: report.Lower},
			},
			Charts: []report.Chart{
				{Name: "rate", Title: "Database queries a second", Kind: report.Bars, Of: "rate", YTitle: "queries a second", YLog: true},
				{Name: "kept", Title: "Old values that outlived their invalidation", Kind: report.Bars, Of: "kept", YTitle: "invalidations"},
			},
		},
		Cases: func(p Profile) []Case {
			lasts := pick(p.Duration, 1500*time.Millisecond)
			contestants := []string{"none", "singleflight", "rockscache", "rueidisaside", "stockade"}
			if p.Full {
				lasts, contestants = pick(p.Duration, 10*time.Second), without(Contestants(), "redsync", "redislock") // which do not keep up
			}
			return []Case{leasesCase(pick(p.Processes, 4), pick(p.Load, 60*time.Millisecond), lasts, p.rounds(1, 1), contestants)}
		},
		Relate: relate("rate", "fewer", "none", func(own, none float64) float64 { return none / own }),
	}
}

func leasesCase(processes int, load, lasts time.Duration, rounds int, contestants []string) Case {
	const (
		hot    = 50
		rate   = 280 // reads a second of a key
		spread = 0.5
	)
	return Case{
		Name: fmt.Sprintf("%d processes, %d keys, load %v ± %.0f %%", processes, hot, load, 100*spread), Rounds: rounds, Contestants: contestants,
		Limit: lasts + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, processes, contestant, peers.Config{TTL: time.Minute, Load: load})
			if err != nil {
				return Result{}, err
			}
			settings := origin.Settings{Load: load, Spread: spread}
			reads := Arrivals{Rate: float64(rate*hot) / float64(processes), Keys: hot, Lasts: 500 * time.Millisecond, Log: true}
			b.Origin.Reset(settings)
			if _, err := arrive(ctx, fleet, reads); err != nil {
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			if err := b.begin(ctx, settings); err != nil {
				return Result{}, err
			}
			reads.Lasts = lasts
			arrived, changes, err := readAndChange(ctx, fleet, reads)
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			wrong := findStale(arrived.Reads, changes, 250*time.Millisecond)
			answers := arrived.Answers
			figures := map[string]float64{
				"rate": float64(counts.Loads) / lasts.Seconds(), "stale": 100 * float64(wrong.reads) / float64(len(arrived.Reads)), "kept": float64(wrong.kept),
				"p99": answers.Latency.at(99), "errors": float64(answers.failed()),
			}
			return answers.result(figures, "latency"), errorsOf(err, answers.err())
		},
	}
}

// readAndChange has reads come while every item that is read is written and invalidated once a second in the mean, each by one of the
// processes.
func readAndChange(ctx context.Context, f Fleet, reads Arrivals) (*Arrived, []Invalidated, error) {
	var (
		arrived *Arrived
		reading error
		wg      sync.WaitGroup
	)
	wg.Go(func() { arrived, reading = arrive(ctx, f, reads) })
	at := time.Now().Add(100 * time.Millisecond)
	all, changing := churning.onAll(ctx, f, func(process int) churnParams {
		own := churnParams{At: at, Every: time.Second, Lasts: reads.Lasts - 100*time.Millisecond}
		for id := process; id < reads.Keys; id += len(f) {
			own.IDs = append(own.IDs, id)
		}
		return own
	})
	wg.Wait()
	return arrived, slices.Concat(all...), errorsOf(reading, changing)
}
