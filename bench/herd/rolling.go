package herd

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// rolling is everyday life: hot keys that are read all the time and expire one after another.
func rolling() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "rolling", Number: "S2", Title: "Hot keys that expire",
			About: "50 readers in each of 4 processes, each every 40 ms, read 100 keys, some of them more often (Zipf), with a TTL of 1 s. Every key has to be " +
				"loaded once for each of its expiries. A load is needless when it begins before the one before it can have expired: within " +
				"0.45 of the TTL, which leaves room for jitter and for a refresh ahead of time.",
			Figures: []report.Figure{
				{Name: "loads", Title: "loads", Best: report.Lower},
				{Name: "needless", Title: "loads ÷ needed", Unit: "×", Best: report.Lower, About: "all loads against those that were not needless"},
				{Name: "exact", Title: "loads ÷ exact TTL", Unit: "×", Best: report.Lower, About: "all loads against those of a TTL of exactly 1 s, met by the same reads: jitter and early refreshes count"},
				{Name: "p50", Title: "p50", Unit: "ms", Best: report.Lower},
				{Name: "p99", Title: "p99", Unit: "ms", Best: report.Lower},
				{Name: "p999", Title: "p99.9", Unit: "ms", Best: report.Lower},
				{Name: "commands", Title: "commands a read", Best: report.Lower},
				{Name: "errors", Title: "errors", Best: report.Lower},
			},
			Charts: []report.Chart{
				{Name: "latency", Title: "How long readers wait", Kind: report.Lines, Of: "latency", XTitle: "one read in so many is slower", YTitle: "ms", XLog: true, YLog: true},
				{Name: "needless", Title: "Loads against those that were needed", Kind: report.Bars, Of: "needless", YTitle: "× the expiries"},
				{Name: "commands", Title: "Commands a read", Kind: report.Bars, Of: "commands", YTitle: "commands"},
			},
		},
		Cases: func(p Profile) []Case {
			lasts, contestants := pick(p.Duration, 2*time.Second), []string{"none", "singleflight", "rockscache", "rueidisaside", "stockade", "stockade stale", "stockade local"}
			if p.Full {
				lasts, contestants = pick(p.Duration, 20*time.Second), without(Contestants(), "go-redis/cache", "redislock", "rockscache strong", "stockade polling", "rueidis") // who differ little from others
			}
			return []Case{rollingCase(pick(p.Processes, 4), pick(p.Callers, 50), pick(p.Load, 20*time.Millisecond), lasts, p.rounds(1, 2), contestants)}
		},
	}
}

func rollingCase(processes, readers int, load, lasts time.Duration, rounds int, contestants []string) Case {
	const (
		ttl   = time.Second
		every = 40 * time.Millisecond
		hot   = 100
	)
	return Case{
		Name: fmt.Sprintf("%d × %d readers, load %v, %v", processes, readers, load, lasts), Rounds: rounds, Contestants: contestants,
		Limit: lasts + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, processes, contestant, peers.Config{TTL: ttl, Load: load})
			if err != nil {
				return Result{}, err
			}
			reads := Arrivals{Rate: float64(readers) / every.Seconds(), Keys: hot, Zipf: 1.01, Lasts: ttl * 3 / 2, Log: true}
			b.Origin.Reset(origin.Settings{Load: load})
			if _, err := arrive(ctx, fleet, reads); err != nil { // until the keys expire at different times
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			before := b.Origin.Counts().Begun
			if err := b.begin(ctx, origin.Settings{Load: load}); err != nil {
				return Result{}, err
			}
			reads.Lasts = lasts
			arrived, err := arrive(ctx, fleet, reads)
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			answers := arrived.Answers
			figures := map[string]float64{
				"loads": float64(counts.Loads), "needless": overNeeded(before, counts.Begun, ttl*45/100),
				"exact": float64(counts.Loads) / float64(expiries(arrived.Reads, ttl, load)),
				"p50":   answers.Latency.at(50), "p99": answers.Latency.at(99), "p999": answers.Latency.at(99.9),
				"commands": float64(answers.sent()) / float64(answers.Latency.Count()), "errors": float64(answers.failed()),
			}
			return answers.result(figures, "latency"), errorsOf(err, answers.err())
		},
	}
}

// overNeeded returns all loads of counted against those that began at least apart after the one of the same key before.
// Those of before count as such, and as no more.
func overNeeded(before, counted []origin.Begun, apart time.Duration) float64 {
	last := map[int]time.Time{} // the last load that was needed, by key
	for _, load := range before {
		last[load.ID] = load.At
	}
	needed := 0
	for _, load := range counted {
		if load.At.Sub(last[load.ID]) >= apart {
			needed++
			last[load.ID] = load.At
		}
	}
	return float64(len(counted)) / float64(max(needed, 1))
}
