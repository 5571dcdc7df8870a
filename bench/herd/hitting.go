package herd

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// hitting has callers read in closed loops: each asks again as soon as it has its answer.
var hitting = define("hit", func(ctx context.Context, w *worker, p hitParams) (hits, error) {
	var (
		callers sync.WaitGroup
		over    atomic.Bool
		reads   atomic.Int64
		once    sync.Once
		failed  error
	)
	runtime.GC() // what was made before costs nobody time
	w.sent.Reset()
	before := allocated()
	began := time.Now()
	end := time.AfterFunc(p.Lasts, func() { over.Store(true) })
	defer end.Stop()
	for caller := range p.Callers {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 1))
			n := 0
			defer func() { reads.Add(int64(n)) }()
			for !over.Load() {
				if _, err := w.get(ctx, random.IntN(p.Keys)); err != nil {
					once.Do(func() { failed = err })
					return
				}
				n++
			}
		})
	}
	callers.Wait()
	took := time.Since(began)
	result := hits{Reads: int(reads.Load()), Took: took, Allocated: allocated() - before, Sent: sum(w.sent.Sent())}
	return result, failed
})

type hitParams struct {
	Callers, Keys int
	Lasts         time.Duration
}

// hits is what came of it.
type hits struct {
	Reads     int
	Took      time.Duration
	Allocated uint64 // objects of the heap, those of the loop and its callers too
	Sent      int    // commands
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func sum(counts map[string]int) int {
	n := 0
	for _, times := range counts {
		n += times
	}
	return n
}
