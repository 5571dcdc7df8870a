package prom

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockade-cache/stockade"
)

// Cache is the collector of one Cache or one middleware. It is safe for concurrent use.
type Cache struct {
	family
	watched atomic.Pointer[Source]

	loadTime, waitTime                   prometheus.Histogram
	loads, waits, refreshes, redisErrors *prometheus.CounterVec
	ignored, misconfigured, recoveries   prometheus.Counter
	stats                                []*prometheus.Desc // of statsMetrics, row by row
}

var _ prometheus.Collector = (*Cache)(nil)

// Source is what counts: a [stockade.Cache] of any type, or a middleware.
type Source interface{ Stats() stockade.Stats }

// New returns a collector that is not registered yet. The error names the field and the value that it refuses.
func New(opts Options) (*Cache, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	c := &Cache{family: family{constant: prometheus.Labels{"cache": opts.Name}, buckets: opts.Buckets}}
	c.loadTime = c.histogram("stockade_load_seconds", "How long loads of this process took, for each key.")
	c.loads = c.counters("stockade_loads_ended_total", "Loads of this process that ended, for each key.", "outcome")
	c.waitTime = c.histogram("stockade_wait_seconds", "How long waits for loads of other processes took, for each key.")
	c.waits = c.counters("stockade_waits_ended_total", "Waits for loads of other processes that ended, for each key.", "outcome")
	c.refreshes = c.counters("stockade_refreshes_ended_total", "Background refreshes that ended or were skipped, for each key.", "when", "outcome")
	c.redisErrors = c.counters("stockade_redis_step_errors_total", "Failures of Redis by what was asked.", "op")
	c.ignored = c.counter("stockade_ignored_keys_total", "Keys that a batch loader returned without having been asked.")
	c.misconfigured = c.counter("stockade_misconfigurations_total", "Kinds of refusal that Redis will keep giving; each is counted once.")
	c.recoveries = c.counter("stockade_redis_recoveries_total", "How often a node worked again whose breaker was open.")
	c.stats = describeStats(c.constant)
	return c, nil
}

// Watch makes scrapes read the Stats of a source, which must not be nil. Views of a Cache share theirs: any will do. A later
// Watch replaces the source. Until the first one, scrapes have no metric that comes from Stats: it would be a zero that
// nobody counted.
func (c *Cache) Watch(s Source) {
	_ = s.Stats() // so that a nil fails here and not in a scrape
	c.watched.Store(&s)
}

// Observer returns the functions for [stockade.Options.Observer].
func (c *Cache) Observer() stockade.Observer {
	return stockade.Observer{
		Load: func(e stockade.LoadEvent) {
			if e.Outcome == stockade.Ignored { // nothing was loaded
				c.ignored.Inc()
				return
			}
			c.loadTime.Observe(e.Took.Seconds())
			c.loads.WithLabelValues(loadOutcome(e)).Inc()
		},
		Wait: func(e stockade.WaitEvent) {
			c.waitTime.Observe(e.Took.Seconds())
			c.waits.WithLabelValues(waitOutcome(e.Err)).Inc()
		},
		Refresh: func(e stockade.RefreshEvent) {
			when := "stale"
			if e.Early {
				when = "early"
			}
			c.refreshes.WithLabelValues(when, refreshOutcome(e)).Inc()
		},
		Redis: func(e stockade.RedisEvent) {
			if e.Err == nil {
				c.recoveries.Inc()
				return
			}
			c.redisErrors.WithLabelValues(e.Op).Inc()
			if e.Misconfigured {
				c.misconfigured.Inc()
			}
		},
	}
}

// Describe is for the registry.
func (c *Cache) Describe(ch chan<- *prometheus.Desc) {
	c.family.Describe(ch)
	for _, desc := range c.stats {
		ch <- desc
	}
}

// Collect is for the registry.
func (c *Cache) Collect(ch chan<- prometheus.Metric) {
	c.family.Collect(ch)
	if watched := c.watched.Load(); watched != nil {
		collectStats(ch, c.stats, (*watched).Stats())
	}
}
