package herd

import (
	"context"
	"fmt"
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
			_, err := getOrLeave(ctx, func() (origin.Item, error) { return w.get(ctx, p.ID) })
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx) // whatever the client calls it
			}
			result.Answers.add(asked, err)
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

var errNoAnswer = fmt.Errorf("no answer within %v", patience)

// getOrLeave returns what get returns, or the cause of ctx's end when that comes first: not every client heeds it.
func getOrLeave(ctx context.Context, get func() (origin.Item, error)) (item origin.Item, err error) {
	answered := make(chan struct{})
	var got origin.Item
	var failed error
	go func() {
		defer close(answered)
		got, failed = get()
	}()
	select {
	case <-answered:
		return got, failed
	case <-ctx.Done():
		return item, context.Cause(ctx)
	}
}
