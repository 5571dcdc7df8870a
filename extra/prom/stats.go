package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockade-cache/stockade"
)

// statsMetric is one figure of Stats as Prometheus has it.
type statsMetric struct {
	name, help string
	result     string // value of the label result; "": the metric has none
	gauge      bool
	value      func(*stockade.Stats) float64
}

const readsHelp = "Keys that were read, by what was found: fresh, stale, local (in this process), absent (known not to exist) or missing."

var statsMetrics = []statsMetric{
	{"stockade_reads_total", readsHelp, "fresh", false, func(s *stockade.Stats) float64 { return float64(s.Hits) }},
	{"stockade_reads_total", readsHelp, "stale", false, func(s *stockade.Stats) float64 { return float64(s.Stale) }},
	{"stockade_reads_total", readsHelp, "local", false, func(s *stockade.Stats) float64 { return float64(s.Local) }},
	{"stockade_reads_total", readsHelp, "absent", false, func(s *stockade.Stats) float64 { return float64(s.Absent) }},
	{"stockade_reads_total", readsHelp, "missing", false, func(s *stockade.Stats) float64 { return float64(s.Misses) }},
	{"stockade_joined_reads_total", "Of the missing reads: those that shared the load or wait of another call.", "", false, func(s *stockade.Stats) float64 { return float64(s.Joined) }},

	{"stockade_waits_total", "Waits for loads of other processes.", "", false, func(s *stockade.Stats) float64 { return float64(s.Waits) }},
	{"stockade_wakes_total", "Messages that ended a wait.", "", false, func(s *stockade.Stats) float64 { return float64(s.Wakes) }},
	{"stockade_polls_total", "Questions of a waiter that no message had woken.", "", false, func(s *stockade.Stats) float64 { return float64(s.Polls) }},

	{"stockade_loads_total", "Loads that were begun; a batch is one.", "", false, func(s *stockade.Stats) float64 { return float64(s.Loads) }},
	{"stockade_load_errors_total", "Loads that failed, for each key.", "", false, func(s *stockade.Stats) float64 { return float64(s.LoadErrors) }},
	{"stockade_refreshes_total", "Of the loads: those in the background.", "", false, func(s *stockade.Stats) float64 { return float64(s.Refreshes) }},
	{"stockade_refreshes_skipped_total", "Refreshes that were not begun, since too many loads ran or another process refreshes.", "", false, func(s *stockade.Stats) float64 { return float64(s.Skipped) }},
	{"stockade_rejected_commits_total", "Loaded values that were not stored, since something newer happened to the key.", "", false, func(s *stockade.Stats) float64 { return float64(s.Rejected) }},
	{"stockade_lost_leases_total", "Leases that were gone before their value was stored.", "", false, func(s *stockade.Stats) float64 { return float64(s.LostLeases) }},
	{"stockade_undecodable_values_total", "Stored values that could not be read.", "", false, func(s *stockade.Stats) float64 { return float64(s.Undecodable) }},

	{"stockade_guard_ruled_out_total", "Loads that were not begun, since the Guard said that the key cannot exist.", "", false, func(s *stockade.Stats) float64 { return float64(s.RuledOut) }},
	{"stockade_guard_errors_total", "Questions to the Guard that it did not answer.", "", false, func(s *stockade.Stats) float64 { return float64(s.GuardErrors) }},

	{"stockade_redis_errors_total", "Failures of Redis, one for each round trip.", "", false, func(s *stockade.Stats) float64 { return float64(s.RedisErrors) }},
	{"stockade_change_errors_total", "Keys whose Set, Invalidate or Expire failed: older values may be served.", "", false, func(s *stockade.Stats) float64 { return float64(s.ChangeErrors) }},
	{"stockade_trips_total", "Round trips that read.", "", false, func(s *stockade.Stats) float64 { return float64(s.Trips) }},
	{"stockade_trip_keys_total", "Keys that trips carried.", "", false, func(s *stockade.Stats) float64 { return float64(s.TripKeys) }},

	{"stockade_flights", "Loads and waits in the air.", "", true, func(s *stockade.Stats) float64 { return float64(s.Flights) }},
	{"stockade_loading", "Loaders that run.", "", true, func(s *stockade.Stats) float64 { return float64(s.Loading) }},
	{"stockade_open_nodes", "Nodes of Redis whose breaker is open and that were needed within the last minute.", "", true, func(s *stockade.Stats) float64 { return float64(s.OpenNodes) }},
}

// describeStats describes the metrics, row by row.
func describeStats(constant prometheus.Labels) []*prometheus.Desc {
	descs := make([]*prometheus.Desc, len(statsMetrics))
	for i, m := range statsMetrics {
		var labels []string
		if m.result != "" {
			labels = []string{"result"}
		}
		descs[i] = prometheus.NewDesc(m.name, m.help, labels, constant)
	}
	return descs
}

func collectStats(ch chan<- prometheus.Metric, descs []*prometheus.Desc, s stockade.Stats) {
	for i, m := range statsMetrics {
		kind := prometheus.CounterValue
		if m.gauge {
			kind = prometheus.GaugeValue
		}
		var labels []string
		if m.result != "" {
			labels = []string{m.result}
		}
		ch <- prometheus.MustNewConstMetric(descs[i], kind, m.value(&s), labels...)
	}
}
