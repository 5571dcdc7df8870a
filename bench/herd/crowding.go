package herd

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// crowding has callers ask for an item that is being loaded elsewhere, and looks at what they take while they wait.
var crowding = define("crowd", func(ctx context.Context, w *worker, p crowdParams) (*crowd, error) {
	result := &crowd{Answers: newAnswers()}
	ctx, cancel := context.WithDeadline(ctx, p.Ends.Add(longestWait))
	defer cancel()
	before := footprintNow()
	w.sent.Reset()
	var callers sync.WaitGroup
	for range p.Callers {
		callers.Go(func() {
			_, err := w.get(ctx, p.ID)
			result.Answers.add(p.Ends, err)
		})
	}
	time.Sleep(time.Until(p.Look))
	result.Took = footprintNow().less(before)
	callers.Wait()
	result.Answers.Sent = w.sent.Sent()
	return result, nil
})

// longestWait is how long after the end of the load a caller waits for its answer.
const longestWait = 10 * time.Second

type crowdParams struct {
	ID, Callers int
	Look        time.Time // when all wait
	Ends        time.Time // when the load does
}

// crowd is what came of it. The latencies of the answers begin when the load ended.
type crowd struct {
	Answers *Answers
	Took    footprint // by all who wait
}

// footprint is what a process has in use.
type footprint struct{ Heap, Stacks, Goroutines int }

// footprintNow collects garbage first.
func footprintNow() footprint {
	runtime.GC()
	runtime.GC() // what the first has found to be garbage is swept by then
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{int(m.HeapAlloc), int(m.StackInuse), runtime.NumGoroutine()}
}

func (f footprint) less(before footprint) footprint {
	return footprint{f.Heap - before.Heap, f.Stacks - before.Stacks, f.Goroutines - before.Goroutines}
}
