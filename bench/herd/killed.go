package herd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

const (
	killedLoad = 30 * time.Second       // of the load that is killed: it does not end by itself
	againLoad  = 20 * time.Millisecond  // of the load that takes its place
	settle     = 300 * time.Millisecond // until all who wait have begun to
	patience   = 15 * time.Second
)

// killed is a process that dies while it loads what others wait for.
func killed() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "killed", Number: "S4", Title: "The process that loads is killed",
			About: fmt.Sprintf("One process loads a value, others wait for it. Then the first is killed (SIGKILL), %v after it took the lock. "+
				"Somebody else has to find that out and load, which takes %v and is subtracted. Locks that nobody renews live for twice "+
				"the longest load they are made for, or for the library's default if that is more: the case says how long a load may be. "+
				"Only contestants that make processes wait for each other take part: the others would have loaded at once, every process for itself.",
				settle, againLoad),
			Figures: []report.Figure{
				{Name: "first", Title: "first answer", Unit: "s", Best: report.Lower, About: "from the kill until the first who waits has the value, without the load itself"},
				{Name: "last", Title: "last answer", Unit: "s", Best: report.Lower, About: "until all who wait have it"},
				{Name: "loads", Title: "loads", Best: report.Lower, About: "begun after the kill: one would do"},
				{Name: "errors", Title: "errors", Best: report.Lower, About: fmt.Sprintf("callers that got an error, or no answer within %v", patience)},
			},
			Charts: []report.Chart{
				{Name: "last", Title: "Until everybody has the value after a kill", Kind: report.Bars, Of: "last", YTitle: "s"},
			},
		},
		Cases: func(p Profile) []Case {
			processes, callers := max(pick(p.Processes, 3), 2), pick(p.Callers, 5)
			if p.Load != 0 || !p.Full {
				return []Case{killedCase(processes, callers, pick(p.Load, time.Second), p.rounds(1, 3), killedShort(p))}
			}
			return []Case{
				killedCase(processes, callers, time.Second, p.rounds(1, 2), sharing),
				killedCase(processes, callers, 5*time.Second, p.rounds(1, 1), sharing),
			}
		},
	}
}

// sharing are the contestants of which one process waits for the load of another.
var sharing = []string{"redsync", "redislock", "rockscache", "rockscache strong", "rueidisaside", "stockade polling", "stockade", "stockade stale", "stockade local"}

// killedShort leaves out who differs little or takes long to give up.
func killedShort(p Profile) []string {
	if p.Full {
		return sharing
	}
	return []string{"redislock", "rockscache", "stockade"}
}

// killedCase has locks that are made for loads of up to longest.
func killedCase(processes, callers int, longest time.Duration, rounds int, contestants []string) Case {
	return Case{
		Name:   fmt.Sprintf("%d × %d wait, a load may take %v", processes-1, callers, longest),
		Rounds: rounds, Contestants: contestants,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, processes, contestant, peers.Config{TTL: time.Minute, Load: longest})
			if err != nil {
				return Result{}, err
			}
			b.Origin.Reset(origin.Settings{Load: againLoad})
			if _, err := stampede(ctx, fleet, 1, callers); err != nil {
				return Result{}, fmt.Errorf("the round before: %w", err)
			}
			if err := b.begin(ctx, origin.Settings{Load: killedLoad}); err != nil {
				return Result{}, err
			}
			at, all, err := killHolder(ctx, b, fleet, callers)
			if err != nil {
				return Result{}, err
			}
			return recovered(b, at, all)
		},
	}
}

// killHolder has the first process load and all others wait, kills the first, and returns when that was and what came of
// those who wait.
func killHolder(ctx context.Context, b *Bench, f Fleet, callers int) (at time.Time, all []waited, err error) {
	until := time.Now().Add(settle + patience)
	holding := make(chan struct{})
	go func() {
		defer close(holding)
		_, _ = waiting.on(ctx, f[0], waitParams{ID: 0, Callers: 1, Until: until}) // it does not live to answer
	}()
	defer func() {
		b.kill(f[0])
		<-holding
	}()
	for b.Origin.Counts().Loads == 0 {
		if time.Sleep(time.Millisecond); time.Now().After(until) || ctx.Err() != nil {
			return at, nil, errors.New("the first process does not load")
		}
	}
	others := make(chan struct{})
	go func() {
		defer close(others)
		all, err = waiting.onAll(ctx, f[1:], same(waitParams{ID: 0, Callers: callers, Until: until}))
	}()
	time.Sleep(settle)
	loads := b.Origin.Counts().Loads
	b.Origin.Change(origin.Settings{Load: againLoad})
	at = time.Now()
	b.kill(f[0])
	<-others
	if loads != 1 && err == nil {
		err = fmt.Errorf("%d loads ran before the kill: not everybody waited", loads)
	}
	return at, all, err
}

// recovered is the result of a kill at that time.
func recovered(b *Bench, at time.Time, all []waited) (Result, error) {
	var answers []*Answers
	var got []float64
	for _, one := range all {
		answers = append(answers, one.Answers)
		for _, when := range one.At {
			got = append(got, (when.Sub(at) - againLoad).Seconds())
		}
	}
	sum := merge(answers)
	counts, err := b.counted()
	result := Result{Figures: map[string]float64{"loads": float64(counts.Loads - 1), "errors": float64(sum.failed())}}
	if len(got) > 0 {
		result.Figures["first"] = slices.Min(got)
	}
	if sum.failed() == 0 {
		result.Figures["last"] = slices.Max(got)
	}
	return result, errorsOf(err, sum.err())
}
