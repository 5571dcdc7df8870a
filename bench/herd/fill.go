package herd

import (
	"context"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

// filling writes items through a contestant, as after a load, without asking the origin: they have version 1.
var filling = define("fill", func(ctx context.Context, w *worker, p fillParams) (none struct{}, err error) {
	const writers = 64
	var (
		wg    sync.WaitGroup
		once  sync.Once
		items = make(chan int)
	)
	for range min(writers, p.Keys) {
		wg.Go(func() {
			for id := range items {
				if failed := w.setSurely(ctx, origin.Item{ID: id, Version: 1}); failed != nil {
					once.Do(func() { err = failed })
				}
			}
		})
	}
	for id := range p.Keys {
		items <- p.First + id
	}
	close(items)
	wg.Wait()
	return none, err
})

// setSurely tries more than once: all writers open their connections now, which on a busy machine takes some clients too
// long.
func (w *worker) setSurely(ctx context.Context, item origin.Item) (err error) {
	for range 5 {
		if err = w.set(ctx, item); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

type fillParams struct{ First, Keys int }

// reading reads every item once, so that it is where the process looks first.
var reading = define("read", func(ctx context.Context, w *worker, p fillParams) (none struct{}, err error) {
	for id := range p.Keys {
		if _, err := w.get(ctx, p.First+id); err != nil {
			return none, err
		}
	}
	return none, nil
})
