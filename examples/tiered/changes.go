package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/examples/internal/display"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

// changes are rounds in which a row changes and A invalidates it. Sorted, one duration a round.
type changes struct {
	reads, old int             // of A after each Invalidate; those that got an old value
	invalidate []time.Duration // what it took
	served     []time.Duration // since it was called: how long B served an old value
	beyond     []time.Duration // the same since it returned, zero for not at all
}

func (c changes) rows(w io.Writer) {
	fmt.Fprintln(w, "\tmedian\tat most\t")
	for _, row := range []struct {
		what string
		took []time.Duration
	}{
		{"Invalidate takes", c.invalidate},
		{"B serves the old value for", c.served},
		{"of that after Invalidate has returned", c.beyond},
	} {
		fmt.Fprintf(w, "%s\t%v\t%v\t\n", row.what, display.Rounded(quantile(row.took, 0.50)), display.Rounded(quantile(row.took, 1)))
	}
}

// change sells one product a round through A, while B reads it.
func change(ctx context.Context, a, b *instance, products *store.Products, rounds int) (c changes, err error) {
	for i := range rounds {
		id := int64(firstID + i%ids)
		old, err := a.find(ctx, id)
		if err != nil {
			return c, err
		}
		reads, last := make(chan struct{}), make(chan lastOld, 1)
		go func() { last <- readOld(ctx, b, old, reads) }()
		<-reads

		failed := products.Sell(ctx, id) // write, then invalidate
		called := time.Now()
		if failed == nil {
			failed = a.cache.Invalidate(ctx, key(id))
		}
		returned := time.Now()
		for j := 0; j < 10 && failed == nil; j++ {
			var now store.Product
			if now, failed = a.find(ctx, id); now == old {
				c.old++
			}
			c.reads++
		}
		of := <-last // after a failure too: nobody else waits for the reader
		if err := cmp.Or(failed, of.err); err != nil {
			return c, err
		}
		c.invalidate = append(c.invalidate, returned.Sub(called))
		c.served = append(c.served, max(of.at.Sub(called), 0))
		c.beyond = append(c.beyond, max(of.at.Sub(returned), 0))
	}
	for _, took := range [][]time.Duration{c.invalidate, c.served, c.beyond} {
		slices.Sort(took)
	}
	return c, nil
}

// lastOld is when an instance last served an old value.
type lastOld struct {
	at  time.Time
	err error
}

// readOld reads a product until it is no longer the old one. It closes reads when it has read for the first time.
func readOld(ctx context.Context, in *instance, old store.Product, reads chan<- struct{}) (last lastOld) {
	const (
		pause    = 20 * time.Microsecond // without one it would keep what it measures from the processor
		patience = 5 * time.Second
	)
	began := time.Now()
	now, err := in.find(ctx, old.ID)
	close(reads)
	for ; err == nil && now == old; now, err = in.find(ctx, old.ID) {
		last.at = time.Now()
		if last.at.Sub(began) > patience {
			err = fmt.Errorf("product %d is still the old one after %v", old.ID, patience)
			break
		}
		time.Sleep(pause)
	}
	switch {
	case err != nil:
		last.err = err
	case last.at.IsZero():
		last.err = fmt.Errorf("product %d: B had another value than A before it changed", old.ID)
	}
	return last
}
