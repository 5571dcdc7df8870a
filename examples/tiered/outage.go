package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/stockade-cache/stockade/examples/internal/display"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

// outage is what was read while there was no Redis.
type outage struct {
	lasted  time.Duration
	reads   int
	queries int64  // of the database
	failed  uint64 // round trips to Redis
	slowest time.Duration
}

func (o outage) row(w io.Writer) {
	fmt.Fprintln(w, "without Redis for\treads\tdatabase queries\tfailures of Redis\tslowest read\t")
	fmt.Fprintf(w, "%v\t%d\t%d\t%d\t%v\t\n", o.lasted.Round(10*time.Millisecond), o.reads, o.queries, o.failed, display.Rounded(o.slowest))
}

// stop stops Redis and goes on reading through both instances.
func stop(ctx context.Context, server *miniredis.Miniredis, instances []*instance, products *store.Products, lasts time.Duration) (o outage, err error) {
	current := map[int64]store.Product{}
	for id := int64(firstID); id <= lastID; id++ {
		if current[id], err = products.Find(ctx, id); err != nil {
			return o, err
		}
	}
	for _, in := range instances {
		if err := in.readAll(ctx); err != nil {
			return o, err
		}
	}
	queries, failed := products.Queries(), redisErrors(instances)
	server.Close()
	began := time.Now()
	for ; time.Since(began) < lasts; time.Sleep(time.Millisecond) {
		for id, want := range current {
			for _, in := range instances {
				asked := time.Now()
				got, err := in.find(ctx, id)
				o.slowest = max(o.slowest, time.Since(asked))
				o.reads++
				if err != nil {
					return o, fmt.Errorf("without Redis: %w", err)
				}
				if got != want {
					return o, fmt.Errorf("without Redis: got %+v, want %+v", got, want)
				}
			}
		}
	}
	o.failed = redisErrors(instances) - failed
	o.lasted, o.queries = time.Since(began), products.Queries()-queries
	return o, nil
}

func redisErrors(instances []*instance) (n uint64) {
	for _, in := range instances {
		n += in.cache.Stats().RedisErrors
	}
	return n
}
