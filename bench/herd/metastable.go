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

// metastable is the example of "Metastable Failures in Distributed Systems" (HotOS 2021): a database that is strong enough
// behind a warm cache, and too weak for a cold one. When the cache is lost, the question is whether it ever comes back.
func metastable() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "metastable", Number: "S12", Title: "The cache is lost",
			About: "A database that answers 300 queries a second, 3,000 reads a second of 1,000 hot keys, and 5 % of the reads for keys that nobody else asks for. " +
				"Everything in Redis is flushed. Readers give up after a second. When each of them goes to the database, the queue there is longer than that, whatever is " +
				"loaded comes too late to be stored, and the cache stays empty though the cause is gone: a metastable failure. " +
				"Goodput is the answers within a second. To load all hot keys one after another takes the database 3.3 s.",
			Figures: []report.Figure{
				{Name: "recovery", Title: "recovered after", Unit: "s", Best: report.Lower, About: "until 95 % of the reads are answered again, and stay so for a second"},
				{Name: "lost", Title: "reads lost", Unit: "%", Best: report.Lower, About: "of those after the flush"},
				{Name: "end", Title: "goodput at the end", Unit: "%", Best: report.Higher, About: "of the last two seconds"},
				{Name: "loads", Title: "loads", Best: report.Lower, About: "after the flush"},
			},
			Charts: []report.Chart{
				{Name: "goodput", Title: "Reads answered within a second, before and after the flush", Kind: report.Lines, Of: "goodput", XTitle: "seconds after the flush", YTitle: "% of the reads"},
				{Name: "recovery", Title: "Until the service is back", Kind: report.Bars, Of: "recovery", YTitle: "s"},
			},
		},
		Cases: func(p Profile) []Case {
			if !p.Full {
				return []Case{metastableCase(pick(p.Processes, 4), pick(p.Duration, 7*time.Second), p.rounds(1, 1), []string{"none", "stockade"})}
			}
			return []Case{metastableCase(pick(p.Processes, 4), pick(p.Duration, 20*time.Second), p.rounds(1, 1), []string{
				"none", "singleflight", "go-redis/cache", "redislock", "rockscache", "sturdyc", "otter", "rueidisaside", "stockade", "stockade local",
			})}
		},
	}
}

func metastableCase(processes int, lasts time.Duration, rounds int, contestants []string) Case {
	const (
		hot      = 1000
		rate     = 3000
		once     = 0.05
		places   = 6
		load     = 20 * time.Millisecond // 6 at once: 300 a second
		before   = 2 * time.Second
		deadline = time.Second
		slot     = 250 * time.Millisecond
	)
	return Case{
		Name: fmt.Sprintf("%d processes", processes), Rounds: rounds, Contestants: contestants, Limit: lasts + time.Minute,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			fleet, err := b.fleet(ctx, processes, contestant, peers.Config{TTL: 10 * time.Minute, Load: load})
			if err != nil {
				return Result{}, err
			}
			if _, err := filling.on(ctx, fleet[0], fillParams{Keys: hot}); err != nil {
				return Result{}, err
			}
			if err := b.begin(ctx, origin.Settings{Load: load, Places: places}); err != nil {
				return Result{}, err
			}
			var flushing error
			var atFlush origin.Counts
			flush := time.AfterFunc(before, func() { atFlush, flushing = b.Origin.Counts(), b.Redis.flush(ctx) })
			defer flush.Stop()
			arrived, err := arrive(ctx, fleet, Arrivals{
				Rate: rate / float64(processes), Keys: hot, Once: once, Lasts: before + lasts, Deadline: deadline, Slot: slot,
			})
			if err = errorsOf(err, flushing); err != nil {
				return Result{}, err
			}
			goodput := goodputOf(arrived.Slots, before, slot)
			figures := map[string]float64{
				"loads": float64(b.Origin.Counts().Loads - atFlush.Loads), "lost": 100 - mean(goodput, 0, lasts), "end": mean(goodput, lasts-2*time.Second, lasts),
			}
			recovery, ok := recoveryOf(goodput, 95, time.Second)
			if !ok {
				err = errorsOf(errNotRecovered, arrived.Answers.err())
			} else {
				figures["recovery"] = recovery.Seconds()
			}
			return Result{Figures: figures, Series: map[string][]report.Point{"goodput": goodput}}, err
		},
	}
}

var errNotRecovered = errors.New("did not recover")

// goodputOf returns how many of the reads of each slot were answered, in percent, over the seconds since a moment.
func goodputOf(slots []Slot, since, width time.Duration) []report.Point {
	var points []report.Point
	for i, slot := range slots {
		if all := slot.Good + slot.Bad; all > 0 {
			at := time.Duration(i)*width - since
			points = append(points, report.Point{X: at.Seconds(), Y: 100 * float64(slot.Good) / float64(all)})
		}
	}
	return points
}

// recoveryOf returns when at least percent of the reads are answered again, and stay so for a while: the first time from
// zero on.
func recoveryOf(goodput []report.Point, percent float64, stays time.Duration) (time.Duration, bool) {
	since := -1.0
	for _, point := range goodput {
		switch {
		case point.X < 0:
		case point.Y < percent:
			since = -1
		case since < 0:
			since = point.X
		}
		if since >= 0 && point.X-since >= stays.Seconds() {
			return time.Duration(since * float64(time.Second)), true
		}
	}
	return 0, false
}

// mean is that of the points from a time to another.
func mean(points []report.Point, from, to time.Duration) float64 {
	sum, n := 0.0, 0
	for _, point := range points {
		if point.X >= from.Seconds() && point.X < to.Seconds() {
			sum += point.Y
			n++
		}
	}
	return sum / float64(max(n, 1))
}
