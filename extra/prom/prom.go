// Package prom shows Prometheus what a Cache, a middleware or a Locker of stockade does.
//
//	metrics, err := prom.New(prom.Options{Name: "product"})
//	cache, err := stockade.New[Product](rdb, stockade.Options{Prefix: "product", Observer: metrics.Observer()})
//	metrics.Watch(cache)
//	prometheus.MustRegister(metrics)
//
// What is counted often, reads above all, comes from the Stats of the cache when it is scraped: a hit costs nothing more.
// Times and outcomes come from its Observer. Labels have few values: names of caches and lockers, outcomes, steps; never
// keys.
//
// Each metric is explained in docs/operations.md. Beside this file are a dashboard for Grafana (dashboard.json) and rules
// for alerts (alerts.yml).
package prom

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Options configure what is shown. Only Name is required.
type Options struct {
	// Name is the value of the label cache, or locker: it tells this one from the others of the process. Two of one
	// name cannot be registered together. Required.
	Name string
	// Buckets are the upper bounds of the classic histograms, in seconds, growing. Native histograms, which a server
	// may ask for instead, do not need them. Default 1 ms to 60 s.
	Buckets []float64
}

// complete fills in the defaults and refuses what cannot be meant.
func (o Options) complete() (Options, error) {
	switch {
	case o.Name == "":
		return o, fmt.Errorf(`prom: Name is "": a name is required`)
	case !utf8.ValidString(o.Name):
		return o, fmt.Errorf("prom: Name is %q: must be UTF-8", o.Name)
	}
	if len(o.Buckets) == 0 {
		o.Buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	}
	o.Buckets = slices.Clone(o.Buckets)
	for i, bound := range o.Buckets {
		if !(bound > 0) || i > 0 && !(bound > o.Buckets[i-1]) {
			return o, fmt.Errorf("prom: Buckets is %v: bounds must be above zero and grow", o.Buckets)
		}
	}
	return o, nil
}

// family makes the metrics that share one constant label.
type family struct {
	constant prometheus.Labels
	buckets  []float64
	made     []prometheus.Collector
}

func (f *family) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: f.constant})
	f.made = append(f.made, c)
	return c
}

func (f *family) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: f.constant}, labels)
	f.made = append(f.made, c)
	return c
}

func (f *family) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: f.constant})
	f.made = append(f.made, g)
	return g
}

// histogram is a classic and a native one: the server takes what it understands.
func (f *family) histogram(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: f.constant, Buckets: f.buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
	f.made = append(f.made, h)
	return h
}

// Describe is for the registry.
func (f *family) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range f.made {
		c.Describe(ch)
	}
}

// Collect is for the registry.
func (f *family) Collect(ch chan<- prometheus.Metric) {
	for _, c := range f.made {
		c.Collect(ch)
	}
}
