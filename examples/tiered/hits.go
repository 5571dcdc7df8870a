package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/examples/internal/display"
)

// hits are reads of products that are cached.
type hits struct {
	reads       int
	local       uint64 // served by the local tier
	trips       uint64 // to Redis
	median, p99 time.Duration
}

func (h hits) row(w io.Writer, where string) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%v\t\n", where, h.reads, h.trips, display.Rounded(h.median), display.Rounded(h.p99))
}

// readHits reads products that are cached, and times that many reads together.
func readHits(ctx context.Context, in *instance, reads, together int) (hits, error) {
	if err := in.readAll(ctx); err != nil { // else the first that counts would open the connection
		return hits{}, err
	}
	before, took := in.cache.Stats(), make([]time.Duration, reads/together)
	for i := range took {
		began := time.Now()
		for j := range together {
			if _, err := in.find(ctx, int64(firstID+(i+j)%ids)); err != nil {
				return hits{}, err
			}
		}
		took[i] = time.Since(began) / time.Duration(together)
	}
	after := in.cache.Stats()
	slices.Sort(took)
	return hits{
		reads: len(took) * together, local: after.Local - before.Local, trips: after.Trips - before.Trips,
		median: quantile(took, 0.50), p99: quantile(took, 0.99),
	}, nil
}

// quantile returns the smallest of what is sorted, and not empty, that at least this part is not above.
func quantile(sorted []time.Duration, part float64) time.Duration {
	return sorted[max(int(math.Ceil(part*float64(len(sorted)))), 1)-1]
}
