package herd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// earlyRefresh is the published law of refreshes ahead of time, beside what is measured.
func earlyRefresh() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "xfetch", Number: "S11", Title: "Refreshing before the expiry",
			About: "XFetch (\"Optimal Probabilistic Cache Stampede Prevention\", VLDB 2015) lets every read of a value that will expire soon toss a coin whether to " +
				"recompute it: nobody waits at the expiry, and no lock is needed. β says how eagerly. But until the first recomputation is stored, after its time D, " +
				"others begin: e^(1/β) on average in all, and the first βD(ln(rβD) + 0.577) before the expiry, with r reads a second. That is \"theory\". \"xfetch\" " +
				"does just that, on GET and SET; \"stockade\" tosses the same coin and then asks for the lease of the key, so that one in the fleet recomputes. " +
				"The law assumes reads at random times, a recomputation that always takes D, processes that do not coordinate, an expiry that comes later than the " +
				"recomputation ends, and a TTL that is long against it: the TTL is chosen for each β so that less than one read in twenty expiries recomputes in its first half.",
			Figures: earlyFigures(),
			Charts: []report.Chart{
				{Name: "recomputations", Title: "Recomputations for each expiry", Kind: report.Lines, Of: "recomputations", XTitle: "β", YTitle: "recomputations"},
				{Name: "gap", Title: "How long before the expiry the first begins", Kind: report.Lines, Of: "gap", XTitle: "β", YTitle: "ms"},
			},
		},
		Cases: func(p Profile) []Case {
			if p.Full {
				return []Case{earlyCase(newExpiring(p, 100*time.Millisecond, 12*time.Second, betas...), p.rounds(1, 1))}
			}
			return []Case{earlyCase(newExpiring(p, 50*time.Millisecond, 2500*time.Millisecond, 0.5, 1), p.rounds(1, 1))}
		},
	}
}

// betas are those of the full profile.
var betas = []float64{0.5, 1, 2, 4}

func earlyFigures() []report.Figure {
	var figures []report.Figure
	for _, beta := range betas {
		figures = append(figures, report.Figure{Name: numberOf(beta), Title: fmt.Sprintf("β = %g", beta), Best: report.Lower, About: "recomputations for each expiry"})
	}
	for _, beta := range betas {
		figures = append(figures, report.Figure{Name: gapOf(beta), Title: fmt.Sprintf("gap, β = %g", beta), Unit: "ms", About: "from the beginning of the first recomputation to the expiry"})
	}
	return append(figures,
		report.Figure{Name: "expiries", Title: "expiries", Best: report.Higher, About: "that the means are of, for all β together"},
		report.Figure{Name: "waited", Title: "reads that waited", Unit: "%", Best: report.Lower, About: "half the time of a recomputation or longer, after the first expiry, over all β"},
	)
}

func numberOf(beta float64) string { return fmt.Sprintf("recomputations %g", beta) }
func gapOf(beta float64) string    { return fmt.Sprintf("gap %g", beta) }

// expiring is the size of the scenario.
type expiring struct {
	processes, keys int
	rate            float64 // reads a second of each key
	load, lasts     time.Duration
	betas           []float64
}

// newExpiring has reads of each key 50 times in D, and as many keys as make 5,000 reads a second. A long D is better: what
// the commands to Redis take is small against it.
func newExpiring(p Profile, load, lasts time.Duration, betas ...float64) expiring {
	const perLoad, all = 50, 5000
	e := expiring{processes: pick(p.Processes, 2), load: pick(p.Load, load), lasts: pick(p.Duration, lasts), betas: betas}
	e.rate = perLoad / e.load.Seconds()
	e.keys = max(int(all/e.rate), 1)
	return e
}

func earlyCase(e expiring, rounds int) Case {
	return Case{
		Name:   fmt.Sprintf("%d keys, each read %.0f times a second, D = %v", e.keys, e.rate, e.load),
		Rounds: rounds, Contestants: []string{"theory", "xfetch", "stockade"}, Limit: time.Duration(len(e.betas))*(e.lasts+10*time.Second) + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			if contestant == "theory" {
				return e.theory(), nil
			}
			result := Result{Figures: map[string]float64{}, Series: map[string][]report.Point{}}
			waited, reads := 0, 0
			for _, beta := range e.betas {
				got, err := e.measure(ctx, b, contestant, beta)
				if err != nil {
					return result, fmt.Errorf("β = %g: %w", beta, err)
				}
				result.add(beta, got.recomputations, got.gap)
				result.Figures["expiries"] += float64(got.expiries)
				waited += got.waited
				reads += got.reads
			}
			result.Figures["waited"] = 100 * float64(waited) / float64(max(reads, 1))
			return result, nil
		},
	}
}

func (r Result) add(beta, recomputations float64, gap time.Duration) {
	milliseconds := gap.Seconds() * 1e3
	r.Figures[numberOf(beta)], r.Figures[gapOf(beta)] = recomputations, milliseconds
	r.Series["recomputations"] = append(r.Series["recomputations"], report.Point{X: beta, Y: recomputations})
	r.Series["gap"] = append(r.Series["gap"], report.Point{X: beta, Y: milliseconds})
}

// theory is the curve between the least and the greatest β, with more points than are measured.
func (e expiring) theory() Result {
	result := Result{Figures: map[string]float64{}, Series: map[string][]report.Point{}}
	least, greatest := slices.Min(e.betas), slices.Max(e.betas)
	const points = 50
	for i := range points + 1 {
		beta := least + (greatest-least)*float64(i)/points
		result.Series["recomputations"] = append(result.Series["recomputations"], report.Point{X: beta, Y: recomputations(beta)})
		result.Series["gap"] = append(result.Series["gap"], report.Point{X: beta, Y: gap(e.rate, e.load, beta).Seconds() * 1e3})
	}
	for _, beta := range e.betas {
		result.Figures[numberOf(beta)], result.Figures[gapOf(beta)] = recomputations(beta), gap(e.rate, e.load, beta).Seconds()*1e3
	}
	return result
}

// refreshed is what was measured for one β.
type refreshed struct {
	recomputations float64
	gap            time.Duration
	expiries       int
	waited, reads  int
}

func (e expiring) measure(ctx context.Context, b *Bench, contestant string, beta float64) (refreshed, error) {
	ttl := longEnough(e.rate, e.load, beta)
	config := peers.Config{TTL: ttl, Load: e.load, NoJitter: true, EarlyRefresh: beta}
	b.number++ // each β has keys of its own
	// What is said of the contestants in the report is not how they are used here.
	fleet, err := b.fleet(ctx, e.processes, contestant+" with β", config, as(contestant), func(s *Setup) {
		config.Redis, config.Prefix = s.Config.Redis, s.Config.Prefix
		if contestant == "xfetch" {
			s.Contestant = "none"
		}
	})
	if err != nil {
		return refreshed{}, err
	}
	if contestant == "xfetch" {
		if _, err := becoming.onAll(ctx, fleet, same(config)); err != nil {
			return refreshed{}, err
		}
	}
	reads := Arrivals{Rate: e.rate * float64(e.keys) / float64(e.processes), Keys: e.keys, Lasts: ttl / 2}
	b.Origin.Reset(origin.Settings{Load: e.load})
	if _, err := arrive(ctx, fleet, reads); err != nil { // all keys are there
		return refreshed{}, fmt.Errorf("the round before: %w", err)
	}
	before, began := b.Origin.Counts().Begun, time.Now()
	if err := b.begin(ctx, origin.Settings{Load: e.load}); err != nil {
		return refreshed{}, err
	}
	reads.Lasts, reads.Log = e.lasts, true
	arrived, err := arrive(ctx, fleet, reads)
	ended := time.Now()
	fleet.stop()
	if err != nil {
		return refreshed{}, err
	}
	counts, err := b.counted()
	if err := errorsOf(err, arrived.Answers.err()); err != nil {
		return refreshed{}, err
	}
	got := meanOf(expiriesOf(append(before, counts.Begun...), e.load), ttl, e.load, began, ended)
	got.reads = len(arrived.Reads)
	for _, read := range arrived.Reads {
		if read.Took > e.load/2 {
			got.waited++
		}
	}
	return got, nil
}

// generation is the recomputations of a key that begin before the first of them is stored: one expiry.
type generation struct {
	id          int
	first, last time.Time // when the first and the last began
	loads       int
}

// expiriesOf puts the loads of a key together that began within one and a half loads: what the commands to Redis take comes
// to the time of a load.
func expiriesOf(begun []origin.Begun, load time.Duration) []generation {
	var all []generation
	latest := map[int]int{} // a key's last one in all
	for _, one := range begun {
		if i, ok := latest[one.ID]; ok && one.At.Sub(all[i].first) < load*3/2 {
			all[i].loads++
			all[i].last = one.At
			continue
		}
		latest[one.ID] = len(all)
		all = append(all, generation{one.ID, one.At, one.At, 1})
	}
	return all
}

// meanOf leaves out what was before it began, when nothing was there to be refreshed, and what may not be complete. A value
// expires a TTL after the last load before has been stored.
func meanOf(all []generation, ttl, load time.Duration, began, ended time.Time) refreshed {
	var got refreshed
	loads, gaps := 0, time.Duration(0)
	before := map[int]generation{}
	for _, g := range all {
		previous, ok := before[g.id]
		before[g.id] = g
		if !ok || g.first.Before(began) || g.first.After(ended.Add(-2*load)) {
			continue
		}
		got.expiries++
		loads += g.loads
		gaps += previous.last.Add(load + ttl).Sub(g.first)
	}
	if got.expiries > 0 {
		got.recomputations = float64(loads) / float64(got.expiries)
		got.gap = gaps / time.Duration(got.expiries)
	}
	return got
}
