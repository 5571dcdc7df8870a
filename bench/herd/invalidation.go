package herd

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// invalidation is whether a read that begins after an invalidation can still get what was there before.
func invalidation() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "invalidation", Number: "S5", Title: "Stale answers after an invalidation",
			About: "A process writes a new version to the database and invalidates the key. When that has returned, every read that begins " +
				"has to return the new version: a figure is after how many of the invalidations one did not, in the process that invalidated " +
				"and in another. Both read without a break and know nothing of each other. Warm: the key was cached, in the process too " +
				"where a contestant does that. During a load: the key was not cached, and a load had read the old version when the new one " +
				"was written. After the load: the same, but nobody reads until that load is over, and may have stored what it read.",
			Figures: []report.Figure{
				{Name: "warmSame", Title: "warm, same process", Best: report.Lower},
				{Name: "warmOther", Title: "warm, other process", Best: report.Lower},
				{Name: "duringSame", Title: "during a load, same process", Best: report.Lower},
				{Name: "duringOther", Title: "during a load, other process", Best: report.Lower},
				{Name: "afterSame", Title: "after the load, same process", Best: report.Lower},
				{Name: "afterOther", Title: "after the load, other process", Best: report.Lower},
				{Name: "longest", Title: "longest stale", Unit: "ms", Best: report.Lower, About: "how long after the invalidation of a warm key the last stale read began, of the 60 ms that are watched"},
				{Name: "errors", Title: "errors", Best: report.Lower, About: "reads and invalidations that failed"},
			},
			Charts: []report.Chart{
				{Name: "warm", Title: "Stale answers in another process, warm key", Kind: report.Bars, Of: "warmOther", YTitle: "invalidations"},
				{Name: "during", Title: "Stale answers in another process, during a load", Kind: report.Bars, Of: "duringOther", YTitle: "invalidations"},
				{Name: "after", Title: "Stale answers in another process, after the load", Kind: report.Bars, Of: "afterOther", YTitle: "invalidations"},
			},
		},
		Cases: func(p Profile) []Case {
			load := max(pick(p.Load, 60*time.Millisecond), 40*time.Millisecond) // several reads have to begin during a load
			if !p.Full {
				return []Case{invalidationCase(60, load, p.rounds(1, 1), []string{"none", "rockscache", "rueidisaside", "stockade", "stockade local"})}
			}
			return []Case{invalidationCase(200, load, p.rounds(1, 1), Contestants())}
		},
	}
}

// invalidationCase makes n invalidations of each kind.
func invalidationCase(n int, load time.Duration, rounds int, contestants []string) Case {
	return Case{
		Name: fmt.Sprintf("%d invalidations, load %v", n, load), Rounds: rounds, Contestants: contestants,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, 2, contestant, peers.Config{TTL: time.Minute, Load: load})
			if err != nil {
				return Result{}, err
			}
			if err := b.begin(ctx, origin.Settings{Load: load}); err != nil {
				return Result{}, err
			}
			figures := map[string]float64{"errors": 0}
			var troubles error
			for i, kind := range kindsOf(load) {
				found, err := kind.measure(ctx, b, fleet, i*passes*n, n)
				if err != nil {
					return Result{Figures: figures}, fmt.Errorf("%s: %w", kind.name, err)
				}
				found.tell(kind, figures)
				troubles = errorsOf(troubles, found.trouble)
				if found.judged < n {
					troubles = errorsOf(troubles, fmt.Errorf("%s: only %d of %d invalidations went as planned", kind.name, found.judged, n))
				}
			}
			_, err = b.counted()
			return Result{Figures: figures}, errorsOf(err, troubles)
		},
	}
}

// staleKind is a way in which an invalidation can meet reads. Times count from the beginning of a key's turn.
type staleKind struct {
	name        string
	loading     bool // the turn begins with a load
	load        time.Duration
	invalidated time.Duration
	from, until time.Duration // when the key is read
	pause, hold time.Duration // of the reads
	atOnce      int           // keys
}

func kindsOf(load time.Duration) []staleKind {
	const watch = 60 * time.Millisecond
	return []staleKind{
		// The pause lets the runtime hear of messages: who reads in a loop without one measures the scheduler.
		{"warm", false, load, 20 * time.Millisecond, 0, 20*time.Millisecond + watch, 100 * time.Microsecond, time.Millisecond, 8},
		{"during", true, load, load / 2, 0, load * 3 / 2, 4 * time.Millisecond, 0, 20},
		{"after", true, load, load / 2, load * 3 / 2, load*3/2 + watch, 4 * time.Millisecond, 0, 20},
	}
}

// passes is how often a kind is repeated at most, for those invalidations that did not go as planned: on a busy machine
// a load is over before the invalidation comes, or nobody reads in time.
const passes = 8

// found is how many invalidations of a kind went as planned, and what the processes saw of them.
type found struct {
	judged      int
	same, other int
	longest     time.Duration
	errors      int
	trouble     error
}

// measure makes n invalidations of items that nobody has used, from that one on.
func (k staleKind) measure(ctx context.Context, b *Bench, f Fleet, first, n int) (sum found, err error) {
	for pass := 0; pass < passes && sum.judged < n; pass++ {
		one, err := k.pass(ctx, b, f, turns{First: first + pass*n, Keys: n - sum.judged, AtOnce: k.atOnce})
		if err != nil {
			return sum, err
		}
		sum.judged, sum.same, sum.other = sum.judged+one.judged, sum.same+one.same, sum.other+one.other
		sum.longest, sum.errors = max(sum.longest, one.longest), sum.errors+one.errors
		sum.trouble = pick(sum.trouble, one.trouble)
	}
	return sum, nil
}

// tell adds the figures of a kind.
func (o found) tell(k staleKind, figures map[string]float64) {
	figures[k.name+"Same"], figures[k.name+"Other"] = float64(o.same), float64(o.other)
	figures["errors"] += float64(o.errors)
	if !k.loading {
		figures["longest"] = o.longest.Seconds() * 1e3
	}
}

func (k staleKind) pass(ctx context.Context, b *Bench, f Fleet, t turns) (one found, err error) {
	if !k.loading {
		if err := readAll(ctx, f, fillParams{First: t.First, Keys: t.Keys}); err != nil {
			return one, err
		}
	}
	b.part(origin.Settings{Load: k.load})
	t.At = time.Now().Add(50 * time.Millisecond)
	t.Lasts = k.until + k.load + 20*time.Millisecond
	var made *invalidations
	invalidated := make(chan error, 1)
	go func() {
		var failed error
		made, failed = invalidating.on(ctx, f[0], invalidateParams{t, k.invalidated})
		invalidated <- failed
	}()
	all, err := watching.onAll(ctx, f, func(i int) watchParams {
		return watchParams{Turns: t, From: k.from, Until: k.until, Pause: k.pause, Hold: k.hold, Leads: k.loading, Part: i}
	})
	if err := errorsOf(<-invalidated, err); err != nil {
		return one, err
	}
	planned := made.Done // those that went as planned
	if k.loading {
		planned = inFlight(planned, b.Origin.Counts().Begun, k.load)
	}
	one.errors, one.trouble = made.Answers.failed(), made.Answers.err()
	for _, process := range all {
		planned = observed(planned, process.Seen)
		one.errors += process.Answers.failed()
		one.trouble = pick(one.trouble, process.Answers.err())
	}
	one.judged = len(planned)
	var longest time.Duration
	one.same, one.longest = judge(planned, all[0].Seen)
	one.other, longest = judge(planned, all[1].Seen)
	one.longest = max(one.longest, longest)
	return one, nil
}

// readAll has every process read items that are in Redis.
func readAll(ctx context.Context, f Fleet, items fillParams) error {
	if _, err := filling.on(ctx, f[0], items); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if _, err := reading.onAll(ctx, f, same(items)); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}
