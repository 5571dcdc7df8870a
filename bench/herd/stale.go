package herd

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

// churning writes items at the origin and invalidates them, each at random times: some while the
// load that the one before made necessary still runs.
var churning = define("churn", func(ctx context.Context, w *worker, p churnParams) (all []Invalidated, err error) {
	var (
		mu sync.Mutex // of all and err
		wg sync.WaitGroup
	)
	for _, id := range p.IDs {
		wg.Go(func() {
			gap := func() time.Duration { return time.Duration(rand.ExpFloat64() * float64(p.Every)) }
			for at := p.At.Add(gap()); at.Before(p.At.Add(p.Lasts)) && ctx.Err() == nil; at = at.Add(gap()) {
				time.Sleep(time.Until(at))
				one, failed := w.change(ctx, id)
				mu.Lock()
				if failed != nil {
					err = failed
				} else {
					all = append(all, one)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all, err
})

type churnParams struct {
	IDs   []int
	At    time.Time
	Every time.Duration // between two writes of one item, in the mean
	Lasts time.Duration
}

// Invalidated is an item that was written and invalidated: from Done on no read that begins may return an older version.
type Invalidated struct {
	Item  origin.Item // as it is since
	Began time.Time   // before it was written
	Done  time.Time   // when the invalidation had returned
}

// change writes an item and invalidates it.
func (w *worker) change(ctx context.Context, id int) (Invalidated, error) {
	began := time.Now()
	item, err := w.origin.Write(ctx, id)
	if err == nil {
		err = w.invalidate(ctx, id)
	}
	return Invalidated{Item: item, Began: began, Done: time.Now()}, err
}

// staleness is what was wrong with reads.
type staleness struct {
	reads int // that returned what had been invalidated before they began
	kept  int // invalidations after which the old value was still returned when no load could be under way any more
}

// findStale looks for stale reads. Loads take at most longest: what is returned later than that after an invalidation has
// been stored in spite of it.
func findStale(reads []Read, all []Invalidated, longest time.Duration) staleness {
	byID := map[int][]Invalidated{}
	for _, one := range all {
		byID[one.Item.ID] = append(byID[one.Item.ID], one)
	}
	var found staleness
	kept := map[origin.Item]bool{}
	for _, read := range reads {
		if read.Version == 0 {
			continue
		}
		stale := false
		for _, one := range byID[read.ID] {
			if read.Version >= one.Item.Version || !read.At.After(one.Done) {
				continue
			}
			stale = true
			if read.At.Sub(one.Done) > longest {
				kept[one.Item] = true
			}
		}
		if stale {
			found.reads++
		}
	}
	found.kept = len(kept)
	return found
}
