package herd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

// waiting has callers ask for one item at once, and says when each had it.
var waiting = define("wait", func(ctx context.Context, w *worker, p waitParams) (waited, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, p.Until, errNoAnswer)
	defer cancel()
	var (
		callers sync.WaitGroup
		mu      sync.Mutex
		result  = waited{Answers: newAnswers()}
		asked   = time.Now()
	)
	for range p.Callers {
		callers.Go(func() {
			item, err := w.getOrLeave(ctx, p.ID)
			result.Answers.add(asked, item, err)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				result.At = append(result.At, time.Now())
			}
		})
	}
	callers.Wait()
	return result, nil
})

type waitParams struct {
	ID, Callers int
	Until       time.Time // callers leave then
}

type waited struct {
	Answers *Answers
	At      []time.Time // of the good answers
}

var errNoAnswer = errors.New("no answer in time")

// getOrLeave reads an item, and returns when ctx ends, which not every client heeds.
func (w *worker) getOrLeave(ctx context.Context, id int) (origin.Item, error) {
	type answer struct {
		item origin.Item
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		item, err := w.get(ctx, id)
		answered <- answer{item, err}
	}()
	select {
	case a := <-answered:
		if a.err != nil && ctx.Err() != nil {
			return a.item, context.Cause(ctx)
		}
		return a.item, a.err
	case <-ctx.Done():
		return origin.Item{}, context.Cause(ctx)
	}
}
