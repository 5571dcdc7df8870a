package herd

import (
	"context"
	"sync"
	"time"
)

// stampeding has callers ask for one item at the same moment.
var stampeding = define("stampede", func(ctx context.Context, w *worker, p stampedeParams) (*Answers, error) {
	answers := newAnswers()
	var callers sync.WaitGroup
	begin := make(chan struct{})
	for range p.Callers {
		callers.Go(func() {
			<-begin
			due := time.Now()
			_, err := w.get(ctx, p.ID)
			answers.add(due, err)
		})
	}
	w.sent.Reset()
	time.Sleep(time.Until(p.At))
	close(begin)
	callers.Wait()
	answers.Sent = w.sent.Sent()
	return answers, nil
})

type stampedeParams struct {
	ID, Callers int
	At          time.Time // the machine's clock is the same for all processes
}

// stampede has all callers of all processes ask for one item at the same moment.
func stampede(ctx context.Context, f Fleet, id, callers int) (*Answers, error) {
	const prepare = 50 * time.Millisecond
	answers, err := stampeding.onAll(ctx, f, same(stampedeParams{ID: id, Callers: callers, At: time.Now().Add(prepare)}))
	if err != nil {
		return nil, err
	}
	return merge(answers), nil
}
