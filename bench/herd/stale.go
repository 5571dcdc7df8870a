package herd

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Ack is an invalidation: from At on, no read that begins may return less than Version.
type Ack struct {
	ID      int
	Version int
	At      time.Time // when Invalidate returned
}

// churning writes items at the origin and invalidates them, each at its own times.
var churning = define("churn", func(ctx context.Context, w *worker, p churnParams) (acks []Ack, err error) {
	var (
		mu sync.Mutex // of acks and err
		wg sync.WaitGroup
	)
	for n, id := range p.IDs {
		wg.Go(func() {
			first := p.At.Add(p.Every * time.Duration(n) / time.Duration(len(p.IDs)))
			for at := first; at.Before(p.At.Add(p.Lasts)) && ctx.Err() == nil; at = at.Add(p.Every) {
				time.Sleep(time.Until(at))
				ack, failed := w.change(ctx, id)
				mu.Lock()
				if failed != nil {
					err = failed
				} else {
					acks = append(acks, ack)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return acks, err
})

type churnParams struct {
	IDs   []int
	At    time.Time
	Every time.Duration // between two writes of one item
	Lasts time.Duration
}

// change writes an item and invalidates it.
func (w *worker) change(ctx context.Context, id int) (Ack, error) {
	item, err := w.origin.Write(ctx, id)
	if err != nil {
		return Ack{}, err
	}
	err = w.invalidate(ctx, id)
	return Ack{ID: id, Version: item.Version, At: time.Now()}, err
}

// staleness is what was wrong with reads.
type staleness struct {
	reads int // that returned what had been invalidated before they began
	kept  int // invalidations after which the old value was still returned when no load could be under way any more
}

// findStale looks for stale reads. Loads take at most longest: what is returned later than that after an invalidation has
// been stored in spite of it.
func findStale(reads []Read, acks []Ack, longest time.Duration) staleness {
	byID := map[int][]Ack{}
	for _, ack := range acks {
		byID[ack.ID] = append(byID[ack.ID], ack)
	}
	for _, own := range byID {
		slices.SortFunc(own, func(x, y Ack) int { return cmp.Compare(x.Version, y.Version) })
	}
	var found staleness
	kept := map[Ack]bool{}
	for _, read := range reads {
		if read.Version == 0 {
			continue
		}
		stale := false
		for _, ack := range byID[read.ID] {
			if read.Version >= ack.Version || !read.At.After(ack.At) {
				continue
			}
			stale = true
			if read.At.Sub(ack.At) > longest {
				kept[ack] = true
			}
		}
		if stale {
			found.reads++
		}
	}
	found.kept = len(kept)
	return found
}
