package otel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/stockade-cache/stockade"
)

// counter is one field of Stats as a metric.
type counter struct {
	name, unit, about string
	outcome           string // the attribute, when several fields are one metric
	value             func(stockade.Stats) uint64
}

var counters = []counter{
	{"stockade.reads", "{read}", "Keys that were read.", "hit", func(s stockade.Stats) uint64 { return s.Hits }},
	{"stockade.reads", "{read}", "Keys that were read.", "stale", func(s stockade.Stats) uint64 { return s.Stale }},
	{"stockade.reads", "{read}", "Keys that were read.", "local", func(s stockade.Stats) uint64 { return s.Local }},
	{"stockade.reads", "{read}", "Keys that were read.", "absent", func(s stockade.Stats) uint64 { return s.Absent }},
	{"stockade.reads", "{read}", "Keys that were read.", "miss", func(s stockade.Stats) uint64 { return s.Misses }},
	{"stockade.joins", "{read}", "Misses that shared the load or wait of another call.", "", func(s stockade.Stats) uint64 { return s.Joined }},
	{"stockade.waits", "{wait}", "Waits for another process's load.", "", func(s stockade.Stats) uint64 { return s.Waits }},
	{"stockade.wait.wakes", "{message}", "Messages that ended a wait.", "", func(s stockade.Stats) uint64 { return s.Wakes }},
	{"stockade.wait.polls", "{poll}", "Questions of a waiter that no message had woken.", "", func(s stockade.Stats) uint64 { return s.Polls }},
	{"stockade.loads", "{load}", "Loads that were begun, refreshes included.", "", func(s stockade.Stats) uint64 { return s.Loads }},
	{"stockade.load.errors", "{load}", "Loads that failed.", "", func(s stockade.Stats) uint64 { return s.LoadErrors }},
	{"stockade.refreshes", "{load}", "Loads in the background.", "", func(s stockade.Stats) uint64 { return s.Refreshes }},
	{"stockade.refresh.skipped", "{refresh}", "Refreshes that were not begun.", "", func(s stockade.Stats) uint64 { return s.Skipped }},
	{"stockade.commit.rejected", "{value}", "Values that were not stored, since something newer happened to the key.", "", func(s stockade.Stats) uint64 { return s.Rejected }},
	{"stockade.lease.losses", "{lease}", "Leases that were found gone.", "", func(s stockade.Stats) uint64 { return s.LostLeases }},
	{"stockade.change.errors", "{key}", "Keys whose Set, Invalidate or Expire failed.", "", func(s stockade.Stats) uint64 { return s.ChangeErrors }},
	{"stockade.undecodable", "{value}", "Stored values that could not be read.", "", func(s stockade.Stats) uint64 { return s.Undecodable }},
	{"stockade.guard.ruled_out", "{key}", "Loads that were not begun, since the Guard ruled the key out.", "", func(s stockade.Stats) uint64 { return s.RuledOut }},
	{"stockade.guard.errors", "{question}", "Questions that the Guard did not answer.", "", func(s stockade.Stats) uint64 { return s.GuardErrors }},
	{"stockade.redis.errors", "{error}", "Failures of Redis.", "", func(s stockade.Stats) uint64 { return s.RedisErrors }},
	{"stockade.redis.trips", "{trip}", "Round trips that read.", "", func(s stockade.Stats) uint64 { return s.Trips }},
	{"stockade.redis.trip.keys", "{key}", "Keys that those carried.", "", func(s stockade.Stats) uint64 { return s.TripKeys }},
}

// gauge is one field of Stats that goes up and down.
type gauge struct {
	name, unit, about string
	value             func(stockade.Stats) int64
}

var gauges = []gauge{
	{"stockade.flights.active", "{flight}", "Loads and waits in the air.", func(s stockade.Stats) int64 { return s.Flights }},
	{"stockade.loads.active", "{load}", "Loaders that run.", func(s stockade.Stats) int64 { return s.Loading }},
	{"stockade.redis.nodes.open", "{node}", "Nodes whose breaker is open.", func(s stockade.Stats) int64 { return s.OpenNodes }},
}

// newCounters makes the instruments of Stats, and what observes them.
func newCounters(meter metric.Meter, name attribute.KeyValue) ([]metric.Observable, func(metric.Observer, stockade.Stats), error) {
	made := map[string]metric.Int64ObservableCounter{}
	var all []metric.Observable
	var observe []func(metric.Observer, stockade.Stats)
	for _, c := range counters {
		instrument, ok := made[c.name]
		if !ok {
			var err error
			instrument, err = meter.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.about))
			if err != nil {
				return nil, nil, err
			}
			made[c.name] = instrument
			all = append(all, instrument)
		}
		with := attributes(name, c.outcome)
		observe = append(observe, func(o metric.Observer, s stockade.Stats) { o.ObserveInt64(instrument, int64(c.value(s)), with) })
	}
	for _, g := range gauges {
		instrument, err := meter.Int64ObservableUpDownCounter(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.about))
		if err != nil {
			return nil, nil, err
		}
		all = append(all, instrument)
		with := attributes(name, "")
		observe = append(observe, func(o metric.Observer, s stockade.Stats) { o.ObserveInt64(instrument, g.value(s), with) })
	}
	return all, func(o metric.Observer, s stockade.Stats) {
		for _, f := range observe {
			f(o, s)
		}
	}, nil
}

// attributes are the name and, unless it is empty, an outcome.
func attributes(name attribute.KeyValue, outcome string) metric.MeasurementOption {
	if outcome == "" {
		return metric.WithAttributeSet(attribute.NewSet(name))
	}
	return metric.WithAttributeSet(attribute.NewSet(name, outcomeKey.String(outcome)))
}

const outcomeKey = attribute.Key("stockade.outcome")
