package herd

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// warmReads is how a case of hits reads.
type warmReads struct {
	callers, size, keys int
	structs             bool // values have to be decoded
	inside              bool // values are where they are read: in the process
}

// warmth is how many keys are read where nothing else is said.
const warmth = 1000

func (h warmReads) String() string {
	name := fmt.Sprintf("%d callers, %s", h.callers, sized(h.size))
	if h.callers == 1 {
		name = "1 caller, " + sized(h.size)
	}
	switch {
	case h.structs:
		name += " structs"
	case h.inside:
		name += ", in the process"
	case h.keys == 1:
		name += ", one key"
	}
	return name
}

func sized(n int) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// warmCases are those of the full profile. Large values are fewer, so that any machine can do it.
func warmCases(callers []int) []warmReads {
	const most = 16 << 20
	var all []warmReads
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		for _, n := range callers {
			all = append(all, warmReads{callers: n, size: size, keys: min(warmth, most/size)})
		}
	}
	for _, n := range callers {
		all = append(all, warmReads{callers: n, size: 1 << 10, keys: warmth, structs: true})
	}
	return all
}

// throughput is the everyday work of a cache: the key is there.
func throughput() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "hits", Number: "S3", Title: "Hits",
			About: "One process reads keys that are all in Redis, drawn evenly from 1,000 (from 256 of 64 KiB), or one hot key. Every caller asks again as soon as " +
				"it has its answer. \"none\" is a plain GET by go-redis. Blocks are short and the contestants take turns, so that all meet the same noise; a " +
				"comparison is one within a round. \"In the process\" is for those that keep values there: they ask nobody.",
			Figures: []report.Figure{
				{Name: "hits", Title: "hits a second", Best: report.Higher},
				{Name: "goredis", Title: "× go-redis", Unit: "×", Best: report.Higher, About: "hits against those of a plain GET by go-redis in the same round"},
				{Name: "rueidis", Title: "× rueidis", Unit: "×", Best: report.Higher, About: "hits against those of a plain GET by rueidis in the same round"},
				{Name: "mean", Title: "a hit takes", Unit: "µs", Best: report.Lower, About: "on average, as its caller sees it"},
				{Name: "allocations", Title: "allocations", Best: report.Lower, About: "objects on the heap for each hit"},
				{Name: "commands", Title: "commands a hit", Best: report.Lower, About: "reads that are sent together as one MGET count as one command"},
				{Name: "server", Title: "Redis busy", Unit: "µs", Best: report.Lower, About: "the time that Redis took for a hit, by INFO commandstats: without reading and writing its sockets"},
			},
			Charts: []report.Chart{
				{Name: "throughput", Title: "Hits a second", Kind: report.Bars, Of: "hits", YTitle: "hits a second", Cases: []string{
					warmReads{callers: 64, size: 100, keys: warmth}.String(), warmReads{callers: 512, size: 100, keys: warmth}.String(),
					warmReads{callers: 64, size: 1 << 10, keys: warmth, structs: true}.String(), warmReads{callers: 64, size: 100, keys: 1}.String(),
				}},
				{Name: "inside", Title: "A hit in the process", Kind: report.Bars, Of: "mean", YTitle: "µs", Cases: []string{
					warmReads{callers: 1, size: 100, inside: true}.String(),
				}},
			},
		},
		Cases: func(p Profile) []Case {
			callers := []int{1, 64, 512}
			if p.Callers != 0 {
				callers = []int{p.Callers}
			}
			all := warmCases(callers)
			if !p.Full && p.Callers == 0 {
				all = []warmReads{{callers: 64, size: 100, keys: warmth}, {callers: 512, size: 100, keys: warmth}}
			}
			many := pick(p.Callers, 64)
			all = append(all,
				warmReads{callers: many, size: 100, keys: 1},
				warmReads{callers: 1, size: 100, keys: warmth, inside: true})
			var cases []Case
			for _, h := range all {
				cases = append(cases, warmCase(h, pick(p.Duration, 300*time.Millisecond), p.rounds(1, 5), warmContestants(h, p.Full)))
			}
			return cases
		},
		Relate: relateHits,
	}
}

// warmContestants are those whose hits differ: most others send the same GET as one of them.
func warmContestants(h warmReads, full bool) []string {
	switch {
	case h.inside && full:
		return []string{"sturdyc", "otter", "rueidis tracked", "rueidisaside", "stockade local"}
	case h.inside:
		return []string{"otter", "rueidis tracked", "stockade local"}
	case !full:
		return []string{"none", "rueidis", "stockade"}
	case h.keys == 1:
		return []string{"none", "singleflight", "go-redis/cache", "rockscache", "rueidis", "stockade"}
	}
	return []string{"none", "go-redis/cache", "rockscache", "rueidis", "stockade"}
}

func warmCase(h warmReads, lasts time.Duration, rounds int, contestants []string) Case {
	return Case{
		Name: h.String(), Rounds: rounds, Contestants: contestants, Limit: lasts + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, 1, contestant, peers.Config{TTL: time.Hour, Load: time.Millisecond}, func(s *Setup) { s.Size, s.Struct = h.size, h.structs })
			if err != nil {
				return Result{}, err
			}
			// A tier in the process may keep nothing before it hears of changes: what is read then is where it will be.
			items, reads := fillParams{Keys: h.keys}, hitParams{Callers: h.callers, Keys: h.keys, Lasts: lasts / 3}
			if _, err := filling.on(ctx, fleet[0], items); err != nil {
				return Result{}, fmt.Errorf("fill: %w", err)
			}
			if _, err := hitting.on(ctx, fleet[0], reads); err != nil {
				return Result{}, err
			}
			if _, err := reading.on(ctx, fleet[0], items); err != nil {
				return Result{}, err
			}
			if err := b.begin(ctx, origin.Settings{}); err != nil {
				return Result{}, err
			}
			reads.Lasts = lasts
			got, err := hitting.on(ctx, fleet[0], reads)
			if err != nil {
				return Result{}, err
			}
			counts, err := b.counted()
			if counts.Loads > 0 {
				err = errorsOf(err, fmt.Errorf("%d reads were no hits", counts.Loads))
			}
			n := float64(max(got.Reads, 1))
			figures := map[string]float64{
				"hits": n / got.Took.Seconds(), "mean": float64(got.Took.Microseconds()) * float64(h.callers) / n,
				"allocations": float64(got.Allocated) / n, "commands": float64(got.Sent) / n,
			}
			err = errorsOf(err, b.serverCalls(ctx, figures))
			if busy, ok := figures["server"]; ok {
				figures["server"] = busy * 1e3 / n
			}
			return Result{Figures: figures}, err
		},
	}
}

// relateHits compares with the plain clients, in each round.
func relateHits(rows []report.Measurement) {
	times := func(own, other float64) float64 { return own / other }
	relate("hits", "goredis", "none", times)(rows)
	relate("hits", "rueidis", "rueidis", times)(rows)
}
