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
				if failed := w.fill(ctx, id); failed != nil {
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

// fill writes an item, again when that fails: some give up early on a busy machine, and this is not what is measured.
func (w *worker) fill(ctx context.Context, id int) (err error) {
	for try := range 3 {
		time.Sleep(time.Duration(try) * 300 * time.Millisecond)
		if err = w.set(ctx, origin.Item{ID: id, Version: 1}); err == nil {
			return nil
		}
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
