package herd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// failing is a database that answers every query with an error.
func failing() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "failing", Number: "S8", Title: "Loads that fail",
			About: "Every query of the database fails after its usual time. The callers of several processes ask for one key, again and again, 10 ms after each answer. " +
				"Here an answer is the error of the query: who asks should get it soon, and the database should not be asked by everybody.",
			Figures: []report.Figure{
				{Name: "rate", Title: "loads a second", Best: report.Lower, About: "of the whole fleet"},
				{Name: "answers", Title: "answers a second", Best: report.Higher, About: "to all callers together: the error of the query"},
				{Name: "p50", Title: "p50", Unit: "ms", Best: report.Lower, About: "until a caller has the error"},
				{Name: "p99", Title: "p99", Unit: "ms", Best: report.Lower},
				{Name: "max", Title: "slowest", Unit: "ms", Best: report.Lower},
				{Name: "commands", Title: "commands an answer", Best: report.Lower},
				{Name: "others", Title: "other errors", Unit: "%", Best: report.Lower, About: "callers that were told something else, such as that a lock is taken"},
			},
			Charts: []report.Chart{
				{Name: "rate", Title: "Queries of a database that fails", Kind: report.Bars, Of: "rate", YTitle: "loads a second", YLog: true},
				{Name: "p99", Title: "Slowest 1 % of the answers", Kind: report.Bars, Of: "p99", YTitle: "ms", YLog: true},
			},
		},
		Cases: func(p Profile) []Case {
			processes, callers, load := pick(p.Processes, 4), pick(p.Callers, 50), pick(p.Load, 20*time.Millisecond)
			if p.Full {
				return []Case{failingCase(processes, callers, load, pick(p.Duration, 5*time.Second), p.rounds(1, 1), Contestants())}
			}
			some := []string{"none", "singleflight", "rockscache", "rueidisaside", "stockade"}
			return []Case{failingCase(processes, callers, load, pick(p.Duration, 1500*time.Millisecond), p.rounds(1, 1), some)}
		},
	}
}

func failingCase(processes, callers int, load, lasts time.Duration, rounds int, contestants []string) Case {
	return Case{
		Name: fmt.Sprintf("%d × %d callers, load %v", processes, callers, load), Rounds: rounds, Contestants: contestants, Limit: lasts + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, processes, contestant, peers.Config{TTL: time.Minute, Load: load})
			if err != nil {
				return Result{}, err
			}
			b.Origin.Reset(origin.Settings{Load: load})
			if _, err := stampede(ctx, fleet, 1, callers); err != nil {
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			if err := b.begin(ctx, origin.Settings{Load: load, Fail: true}); err != nil {
				return Result{}, err
			}
			until := time.Now().Add(lasts)
			all, err := insisting.onAll(ctx, fleet, same(insistParams{Callers: callers, Until: until}))
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			answers := merge(all)
			n := float64(answers.Latency.Count())
			figures := map[string]float64{
				"rate": float64(begunBefore(counts.Begun, until)) / lasts.Seconds(), "answers": n / lasts.Seconds(),
				"p50": answers.Latency.at(50), "p99": answers.Latency.at(99), "max": answers.Latency.at(100),
				"commands": float64(answers.sent()) / n, "others": 100 * float64(answers.failed()) / (float64(answers.failed()) + n),
			}
			return answers.result(figures, "latency"), err
		},
	}
}

// insisting has callers ask for one item, again and again. The error of the query is a good answer.
var insisting = define("insist", func(ctx context.Context, w *worker, p insistParams) (*Answers, error) {
	const pause = 10 * time.Millisecond
	answers := newAnswers()
	w.sent.Reset()
	var callers sync.WaitGroup
	for range p.Callers {
		callers.Go(func() {
			for time.Now().Before(p.Until) && ctx.Err() == nil {
				asked := time.Now()
				_, err := w.get(ctx, 0)
				answers.add(asked, asAnswer(err))
				time.Sleep(pause)
			}
		})
	}
	callers.Wait()
	answers.Sent = w.sent.Sent()
	return answers, nil
})

type insistParams struct {
	Callers int
	Until   time.Time // nobody asks later
}

// asAnswer takes the error of the query for what was asked, in whatever it is wrapped: other processes may have only its
// text.
func asAnswer(err error) error {
	switch {
	case err == nil:
		return errNoError
	case strings.Contains(err.Error(), origin.ErrFailed.Error()):
		return nil
	}
	return err
}

var errNoError = fmt.Errorf("a value, though no query succeeds")

func begunBefore(all []origin.Begun, until time.Time) int {
	n := 0
	for _, load := range all {
		if load.At.Before(until) {
			n++
		}
	}
	return n
}
