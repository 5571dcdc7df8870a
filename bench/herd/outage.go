package herd

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

const (
	outageKeys     = 50
	outageDeadline = time.Second // of a read
	outageSlot     = 100 * time.Millisecond
	outageBefore   = 500 * time.Millisecond // of reads that are not measured
)

// outage is a Redis that does not answer, and then one that is not there.
func outage() Scenario {
	return Scenario{
		Scenario: report.Scenario{
			Name: "outage", Number: "S6", Title: "Redis fails",
			About: fmt.Sprintf("Reads of %d cached keys arrive all the time, each with a deadline of %v. First Redis is frozen (SIGSTOP): its connections stay open and nothing "+
				"answers. It goes on, then it is killed: connections are refused. At last it is restarted, empty. A read counts as answered when "+
				"it has a value within its deadline. The database could serve all keys the whole time, if it were asked and not flooded. "+
				"Contestants that keep values in the process are served by these.", outageKeys, outageDeadline),
			Figures: []report.Figure{
				{Name: "frozenAnswered", Title: "frozen: answered", Unit: "%", Best: report.Higher},
				{Name: "frozenErrors", Title: "frozen: errors", Best: report.Lower, About: "reads that failed before their deadline was over"},
				{Name: "frozenP50", Title: "frozen: p50", Unit: "ms", Best: report.Lower, About: "of those that were answered"},
				{Name: "frozenP99", Title: "frozen: p99", Unit: "ms", Best: report.Lower},
				{Name: "frozenLoads", Title: "frozen: loads", Best: report.Either},
				{Name: "frozenPeak", Title: "frozen: loads at once", Best: report.Lower},
				{Name: "thawedBack", Title: "back after the freeze", Unit: "ms", Best: report.Lower, About: "until at least 99 % are answered, for good; in steps of 100 ms"},
				{Name: "deadAnswered", Title: "dead: answered", Unit: "%", Best: report.Higher},
				{Name: "deadErrors", Title: "dead: errors", Best: report.Lower},
				{Name: "deadP50", Title: "dead: p50", Unit: "ms", Best: report.Lower},
				{Name: "deadP99", Title: "dead: p99", Unit: "ms", Best: report.Lower},
				{Name: "deadLoads", Title: "dead: loads", Best: report.Either},
				{Name: "deadPeak", Title: "dead: loads at once", Best: report.Lower},
				{Name: "emptyBack", Title: "back after the restart", Unit: "ms", Best: report.Lower, About: "until at least 99 % are answered, for good; in steps of 100 ms"},
				{Name: "emptyLoads", Title: "loads after the restart", Best: report.Lower, About: fmt.Sprintf("the server is empty: %d are needed, but where values are kept in the process", outageKeys)},
			},
			Charts: []report.Chart{
				{Name: "answered", Title: "Reads answered while Redis fails", Kind: report.Lines, Of: "answered", XTitle: "s", YTitle: "% answered"},
				{Name: "frozen", Title: "Answered while Redis is frozen", Kind: report.Bars, Of: "frozenAnswered", YTitle: "%"},
				{Name: "dead", Title: "Answered while Redis is dead", Kind: report.Bars, Of: "deadAnswered", YTitle: "%"},
			},
		},
		Cases: func(p Profile) []Case {
			c := outageSize{
				processes: pick(p.Processes, 2), rate: 2500, load: pick(p.Load, 20*time.Millisecond),
				normal: time.Second / 2, frozen: pick(p.Duration, 3*time.Second/2), thawed: time.Second, dead: pick(p.Duration, 3*time.Second/2), empty: time.Second,
			}
			contestants := []string{"rockscache", "stockade"}
			if p.Full {
				c.normal, c.frozen, c.thawed, c.dead, c.empty = time.Second, pick(p.Duration, 2*time.Second), 2*time.Second, pick(p.Duration, 3*time.Second), 2*time.Second
				// Not the one that polls: the restarted server does not know its user.
				contestants = []string{"none", "go-redis/cache", "redislock", "rockscache", "sturdyc", "otter", "rueidis tracked", "rueidisaside", "stockade", "stockade local"}
			}
			return []Case{outageCase(c, p.rounds(1, 1), contestants)}
		},
	}
}

// outageSize is how large an outage is.
type outageSize struct {
	processes                           int
	rate                                float64 // reads a second, of each process
	load                                time.Duration
	normal, frozen, thawed, dead, empty time.Duration // how long Redis is so
}

// outageStage is a time during which Redis is in one state.
type outageStage struct {
	name   string
	lasts  time.Duration
	begin  func() error // brings the state about; nil for the first
	at, to time.Time    // when it was so
	counts origin.Counts
}

func outageCase(c outageSize, rounds int, contestants []string) Case {
	all := c.normal + c.frozen + c.thawed + c.dead + c.empty
	return Case{
		Name:   fmt.Sprintf("%d × %g reads/s, frozen %v, dead %v", c.processes, c.rate, c.frozen, c.dead),
		Rounds: rounds, Contestants: contestants, Limit: all + 30*time.Second,
		Measure: func(ctx context.Context, b *Bench, contestant string) (Result, error) {
			if b.Redis.proc == nil {
				return Result{}, errNotOurs
			}
			defer func() { _ = b.Redis.Restart() }() // whatever happened, the next measurement finds a server
			fleet, err := b.fleet(ctx, c.processes, contestant, peers.Config{TTL: time.Minute, Load: c.load})
			if err != nil {
				return Result{}, err
			}
			if err := b.begin(ctx, origin.Settings{Load: c.load}); err != nil {
				return Result{}, err
			}
			if err := readAll(ctx, fleet, fillParams{First: 0, Keys: outageKeys}); err != nil {
				return Result{}, err
			}
			reads := Arrivals{Rate: c.rate, Lasts: outageBefore, Deadline: outageDeadline, Keys: outageKeys}
			if _, err := arrive(ctx, fleet, reads); err != nil { // clients open their connections
				return Result{}, fmt.Errorf("the reads before: %w", err)
			}
			stages := []*outageStage{
				{name: "normal", lasts: c.normal},
				{name: "frozen", lasts: c.frozen, begin: b.Redis.Freeze},
				{name: "thawed", lasts: c.thawed, begin: b.Redis.Thaw},
				{name: "dead", lasts: c.dead, begin: b.Redis.Kill},
				{name: "empty", lasts: c.empty, begin: b.Redis.Restart},
			}
			reads.Lasts, reads.Slot, reads.Log = all, outageSlot, true
			reads.At = time.Now().Add(50 * time.Millisecond)
			staged := make(chan error, 1)
			go func() { staged <- b.runStages(ctx, stages, reads.At, origin.Settings{Load: c.load}) }()
			arrived, err := arrive(ctx, fleet, reads)
			if err := errorsOf(<-staged, err); err != nil {
				return Result{}, err
			}
			result, err := outageResult(stages, reads.At, arrived)
			return result, errorsOf(b.loadsAgree(), normalErr(stages[0], arrived.Reads), err, arrived.Answers.err())
		},
	}
}

// runStages brings about one state after another, the first of which is there at that time.
func (b *Bench) runStages(ctx context.Context, stages []*outageStage, at time.Time, s origin.Settings) error {
	for i, stage := range stages {
		time.Sleep(time.Until(at))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at = at.Add(stage.lasts)
		if stage.begin != nil {
			if err := stage.begin(); err != nil {
				return fmt.Errorf("%s: %w", stage.name, err)
			}
		}
		stage.at = time.Now()
		counts := b.part(s)
		if i > 0 {
			stages[i-1].counts, stages[i-1].to = counts, stage.at
		}
	}
	time.Sleep(time.Until(at))
	last := stages[len(stages)-1]
	last.counts, last.to = b.part(s), time.Now()
	return nil
}

// loadsAgree fails when a load was lost. One that begins just now is counted here and there in a moment.
func (b *Bench) loadsAgree() (err error) {
	for range 20 {
		if _, err = b.counted(); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// normalErr fails when reads were not answered while all was well: then nothing that follows says anything.
func normalErr(normal *outageStage, reads []Read) error {
	if answered := sumUp(reads, normal.at, normal.to).answered; !(answered >= 99) {
		return fmt.Errorf("only %.1f %% were answered before the outage", answered)
	}
	return nil
}

// outageResult fails when answers did not come back after a failure.
func outageResult(stages []*outageStage, began time.Time, arrived *Arrived) (result Result, err error) {
	figures := map[string]float64{}
	for _, stage := range stages {
		switch stage.name {
		case "frozen", "dead":
			sum := sumUp(arrived.Reads, stage.at, stage.to)
			figures[stage.name+"Answered"], figures[stage.name+"Errors"] = sum.answered, float64(sum.failed)
			figures[stage.name+"P50"], figures[stage.name+"P99"] = sum.good.at(50), sum.good.at(99)
			figures[stage.name+"Loads"], figures[stage.name+"Peak"] = float64(stage.counts.Loads), float64(stage.counts.Peak)
		case "thawed", "empty":
			figures[stage.name+"Loads"] = float64(stage.counts.Loads)
			back, ok := backAfter(arrived.Slots, stage.at.Sub(began), stage.to.Sub(began))
			if !ok {
				err = errorsOf(err, fmt.Errorf("%s: less than 99 %% were answered to the end of these %v", stage.name, stage.lasts))
				continue
			}
			figures[stage.name+"Back"] = back.Seconds() * 1e3
		}
	}
	result = arrived.Answers.result(figures, "latency")
	for i, slot := range arrived.Slots {
		if all := slot.Good + slot.Bad; all > 0 {
			point := report.Point{X: (time.Duration(i) * outageSlot).Seconds(), Y: 100 * float64(slot.Good) / float64(all)}
			result.Series["answered"] = append(result.Series["answered"], point)
		}
	}
	return result, err
}

// summary is what became of some reads.
type summary struct {
	answered float64 // percent; NaN when there was no read
	failed   int     // before the deadline
	good     *Latency
}

// sumUp looks at the reads that came in [from, to).
func sumUp(reads []Read, from, to time.Time) summary {
	sum := summary{good: newLatency()}
	all := 0
	for _, read := range reads {
		if read.At.Before(from) || !read.At.Before(to) {
			continue
		}
		all++
		switch {
		case read.Version > 0:
			sum.good.add(read.Took)
		case read.Failed:
			sum.failed++
		}
	}
	sum.answered = 100 * float64(sum.good.Count()) / float64(all)
	return sum
}

// backAfter returns how long after from it takes until 99 % of the reads of every slot are answered, up to to. It reports
// false when that never comes. The last slot is left out: its reads may meet what comes next.
func backAfter(slots []Slot, from, to time.Duration) (time.Duration, bool) {
	first, end := int(from/outageSlot), min(int((to-outageSlot/2)/outageSlot), len(slots))
	bad := first - 1 // the last slot that is
	for i := first; i < end; i++ {
		if slot := slots[i]; slot.Good < 99*slot.Bad {
			bad = i
		}
	}
	if bad >= end-1 {
		return 0, false
	}
	return max(time.Duration(bad+1)*outageSlot-from, 0), true
}
