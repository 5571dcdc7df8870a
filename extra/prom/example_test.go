package prom_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/prom"
)

// The metrics come first, since the cache needs their Observer, and they the cache's Stats.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	metrics, err := prom.New(prom.Options{Name: "product"})
	if err != nil {
		panic(err)
	}
	cache, err := stockade.New[string](rdb, stockade.Options{Prefix: "product", Observer: metrics.Observer()})
	if err != nil {
		panic(err)
	}
	defer cache.Close()
	metrics.Watch(cache)

	registry := prometheus.NewRegistry() // or the default one, which promhttp.Handler shows
	registry.MustRegister(metrics)

	for range 3 {
		_, _ = cache.Get(context.Background(), "7", func(context.Context) (string, error) { return "a lamp", nil })
	}
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if v := m.GetCounter().GetValue(); v > 0 && strings.HasPrefix(family.GetName(), "stockade_reads") {
				fmt.Println(family.GetName(), m.GetLabel()[1].GetValue(), v)
			}
		}
	}
	// Output:
	// stockade_reads_total fresh 2
	// stockade_reads_total missing 1
}

// A Locker has a collector of its own.
func ExampleNewLocker() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()

	metrics, err := prom.NewLocker(prom.Options{Name: "orders"})
	if err != nil {
		panic(err)
	}
	locks, err := stockade.NewLocker(rdb, stockade.LockOptions{Prefix: "orders", Observer: metrics.Observer()})
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	prometheus.NewRegistry().MustRegister(metrics)
}
