// Package herd holds the scenarios of the benchmark: what is done to a fleet of processes that share one Redis and one
// database, and what is measured. A scenario is one file.
package herd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/report"
)

// Profile says how much is measured. What is zero is the scenario's own.
type Profile struct {
	Full      bool // everything, several times; otherwise what fits into three minutes
	Processes int
	Callers   int           // of each process
	Load      time.Duration // what a load takes
	Duration  time.Duration // of what goes on for a while
	Rounds    int
}

// pick returns the first that is not zero.
func pick[T comparable](values ...T) (picked T) {
	for _, value := range values {
		if value != picked {
			return value
		}
	}
	return picked
}

// rounds is how often a case is measured.
func (p Profile) rounds(short, full int) int {
	if p.Full {
		return pick(p.Rounds, full)
	}
	return pick(p.Rounds, short)
}

// Scenario is one thing that is done to all contestants.
type Scenario struct {
	report.Scenario // but for its rows and its noise
	// Cases are measured one after another.
	Cases func(Profile) []Case
	// Relate adds figures that compare the contestants of a round. It may be nil.
	Relate func(rows []report.Measurement)
}

// Case is a scenario at one size.
type Case struct {
	Name        string
	Rounds      int
	Contestants []string      // in turns, each in every round
	Limit       time.Duration // of one measurement; zero means a minute
	// Measure makes one measurement. It fills in figures and series.
	Measure func(ctx context.Context, b *Bench, contestant string) (Result, error)
}

// Result is what was measured. It may come together with an error.
type Result struct {
	Figures map[string]float64
	Series  map[string][]report.Point
}

// Scenarios returns all of them, in the order of the report.
func Scenarios() []Scenario {
	return []Scenario{
		cold(), rolling(), throughput(), killed(), invalidation(), outage(), waiters(), failing(), avalanche(),
		leases(), earlyRefresh(), metastable(), pages(),
	}
}

// Find returns the scenarios of those names or numbers, in the order of the report.
func Find(names []string) ([]Scenario, error) {
	found := Scenarios()
	if len(names) == 0 {
		return found, nil
	}
	var known []string
	for _, s := range found {
		known = append(known, s.Number+" "+s.Name)
	}
	for _, name := range names {
		if !slices.ContainsFunc(found, func(s Scenario) bool { return s.is(name) }) {
			return nil, fmt.Errorf("no scenario is called %q: there are %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(found, func(s Scenario) bool { return !slices.ContainsFunc(names, s.is) }), nil
}

func (s Scenario) is(name string) bool {
	return strings.EqualFold(name, s.Name) || strings.EqualFold(name, s.Number)
}

// Contestants returns the names of all that are caches, in the order of the report.
func Contestants() []string {
	var names []string
	for _, contestant := range peers.All[[]byte]() {
		names = append(names, contestant.Name)
	}
	return names
}

// HTTPContestants returns the names of those for HTTP. A name may be that of a cache, too.
func HTTPContestants() []string {
	var names []string
	for _, contestant := range peers.AllHTTP() {
		names = append(names, contestant.Name)
	}
	return names
}

// Names returns the names of all contestants, in the order of the report.
func Names() []string {
	names := Contestants()
	for _, name := range HTTPContestants() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Bench is what scenarios measure with.
type Bench struct {
	Redis  *Redis
	Origin *origin.Origin
	meter  *miniredis.Miniredis

	run      string // a part of all keys: a foreign server may have those of another run
	number   int    // of the measurement
	fleets   []Fleet
	settings map[string]string // by contestant
	meterKey string
	killed   int   // processes, in this measurement
	earlier  int   // loads of the parts of this measurement that are over
	before   calls // of the server
}

// NewBench returns a bench on a server and a database that stay their owner's.
func NewBench(r *Redis, o *origin.Origin) (*Bench, error) {
	meter, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	return &Bench{Redis: r, Origin: o, meter: meter, run: rand.Text()[:8], settings: map[string]string{}}, nil
}

// Close ends the bench.
func (b *Bench) Close() { b.meter.Close() }

// fleet starts n processes of a contestant, with the TTL and the other hints in c. They end with the measurement.
func (b *Bench) fleet(ctx context.Context, n int, contestant string, c peers.Config, change ...func(*Setup)) (Fleet, error) {
	c.Redis = b.Redis.Addr()
	c.Prefix = fmt.Sprintf("bench:%s:%d", b.run, b.number)
	setup := Setup{
		Contestant: contestant, Config: c, Size: 100,
		Origin: b.Origin.Addr(), Meter: b.meter.Addr(), MeterKey: b.meterKey,
	}
	for _, f := range change {
		f(&setup)
	}
	fleet, err := startFleet(ctx, n, setup)
	if err != nil {
		return nil, err
	}
	name := contestant
	if setup.HTTP {
		name += overHTTP
	}
	b.settings[name] = fleet[0].settings
	b.fleets = append(b.fleets, fleet)
	return fleet, nil
}

// Peers describes the contestants that took part.
func (b *Bench) Peers() []report.Peer {
	var all []report.Peer
	for _, contestant := range peers.All[[]byte]() {
		if settings, ok := b.settings[contestant.Name]; ok {
			all = append(all, report.Peer{Name: contestant.Name, About: contestant.About, Settings: settings})
		}
	}
	for _, contestant := range peers.AllHTTP() {
		name := contestant.Name + overHTTP
		if settings, ok := b.settings[name]; ok {
			all = append(all, report.Peer{Name: name, About: contestant.About, Settings: settings})
		}
	}
	return all
}

// overHTTP is behind the name of a contestant for HTTP where it is described beside the caches.
const overHTTP = ", HTTP"

// begin lets the counts begin: of loads, of the server's commands. What was done before has made connections.
func (b *Bench) begin(ctx context.Context, s origin.Settings) (err error) {
	b.Origin.Reset(s)
	b.earlier = 0
	b.meter.Del(b.meterKey)
	b.before, err = b.Redis.calls(ctx)
	return err
}

// part ends a part of a measurement: it returns what the origin counted in it. Not a load is missed between two parts.
func (b *Bench) part(s origin.Settings) origin.Counts {
	counts := b.Origin.Reset(s)
	b.earlier += counts.Loads
	return counts
}

// kill ends a process of the fleet with SIGKILL, unless it has ended.
func (b *Bench) kill(p *Process) {
	select {
	case <-p.exited:
	default:
		b.killed++
		p.kill()
	}
}

// counted returns the loads, of the last part when there are several, and fails when the origin and Redis have counted
// differently: a process that was killed may have said that it loads, and not have done it.
func (b *Bench) counted() (origin.Counts, error) {
	counts := b.Origin.Counts()
	text, err := b.meter.Get(b.meterKey)
	if errors.Is(err, miniredis.ErrKeyNotFound) {
		text, err = "0", nil
	}
	if err != nil {
		return counts, err
	}
	var metered int
	if _, err := fmt.Sscan(text, &metered); err != nil {
		return counts, err
	}
	if loads := b.earlier + counts.Loads; metered < loads || metered > loads+b.killed {
		return counts, fmt.Errorf("the origin counted %d loads, Redis %d", loads, metered)
	}
	return counts, nil
}

// serverCalls adds what the server did since begin to the figures: an embedded one does not tell.
func (b *Bench) serverCalls(ctx context.Context, figures map[string]float64) error {
	now, err := b.Redis.calls(ctx)
	if err != nil || now == (calls{}) {
		return err
	}
	figures["calls"] = float64(now.n - b.before.n)
	figures["server"] = float64(now.micros-b.before.micros) / 1e3
	return nil
}

// measure makes one measurement on a clean server, and leaves no process behind.
func (b *Bench) measure(ctx context.Context, c Case, contestant string) (result Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pick(c.Limit, time.Minute), errTooLong)
	defer cancel()
	b.number++
	b.killed = 0
	b.meterKey = fmt.Sprint("loads:", b.number)
	defer func() {
		for _, fleet := range b.fleets {
			fleet.stop()
		}
		b.fleets = nil
		b.Origin.GiveUp() // of loads that nobody waits for
	}()
	if err := b.Redis.clean(ctx); err != nil {
		return Result{}, err
	}
	return c.Measure(ctx, b, contestant)
}

var errTooLong = errors.New("it took too long, and was given up")

// Event tells of progress.
type Event struct {
	Scenario, Case, Contestant string
	Round                      int
	Done, All                  int                 // measurements
	Row                        *report.Measurement // what was measured; nil when it begins
}

// Count returns how many measurements there are.
func Count(scenarios []Scenario, p Profile, contestants []string) int {
	n := 0
	for _, s := range scenarios {
		for _, c := range s.Cases(p) {
			n += c.Rounds * len(only(c.Contestants, contestants))
		}
	}
	return n
}

// without returns the contestants but some.
func without(contestants []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(contestants), func(c string) bool { return slices.Contains(some, c) })
}

// only returns those of a case that are wanted; no wish means all.
func only(contestants, wanted []string) []string {
	if len(wanted) == 0 {
		return contestants
	}
	return slices.DeleteFunc(slices.Clone(contestants), func(name string) bool { return !slices.Contains(wanted, name) })
}

// Run measures scenarios: in every round the contestants take turns, each time beginning with another one. Keep is given
// each scenario as it ends: the last may not be complete when ctx has ended, which is the error then.
func (b *Bench) Run(ctx context.Context, scenarios []Scenario, p Profile, contestants []string, tell func(Event), keep func(report.Scenario) error) error {
	event := Event{All: Count(scenarios, p, contestants)}
	for _, s := range scenarios {
		event.Scenario = s.Name
		var noise noise
		done := s.Scenario
		for _, c := range s.Cases(p) {
			taking := only(c.Contestants, contestants)
			for round := range c.Rounds {
				for turn := range taking {
					contestant := taking[(turn+round)%len(taking)]
					event.Case, event.Contestant, event.Round, event.Row = c.Name, contestant, round+1, nil
					tell(event)
					noise.sample()
					result, err := b.measure(ctx, c, contestant)
					if ctx.Err() != nil {
						return errors.Join(context.Cause(ctx), keep(finish(s, done, noise)))
					}
					row := report.Measurement{
						Case: c.Name, Contestant: contestant, Round: round + 1, Figures: result.Figures, Series: result.Series,
					}
					if err != nil {
						row.Error = err.Error()
					}
					done.Rows = append(done.Rows, row)
					event.Done, event.Row = event.Done+1, &row
					tell(event)
				}
			}
		}
		if err := keep(finish(s, done, noise)); err != nil {
			return err
		}
	}
	return nil
}

// finish adds what is known only when all was measured. Rows are in the order of the contestants, not of their turns.
func finish(s Scenario, done report.Scenario, n noise) report.Scenario {
	if s.Relate != nil {
		s.Relate(done.Rows)
	}
	order := Names()
	place := func(row report.Measurement) int { return slices.Index(order, row.Contestant) }
	var cases []string
	for _, row := range done.Rows {
		if !slices.Contains(cases, row.Case) {
			cases = append(cases, row.Case)
		}
	}
	slices.SortStableFunc(done.Rows, func(x, y report.Measurement) int {
		return pick(slices.Index(cases, x.Case)-slices.Index(cases, y.Case), place(x)-place(y), x.Round-y.Round)
	})
	done.Noise = n.summary()
	return done
}
