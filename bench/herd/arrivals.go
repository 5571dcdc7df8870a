package herd

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

// Arrivals are reads that come at their own times, whatever the answers do: an open loop. A read that is held up holds
// up no other, so what waits counts (no coordinated omission).
type Arrivals struct {
	Rate     float64       // reads a second, of each process
	Lasts    time.Duration // for how long they come
	Deadline time.Duration // of a read's context; zero means none
	Keys     int           // items that are read: those from First on
	First    int
	Zipf     float64       // above 1: how unevenly they are read; zero means evenly
	Once     float64       // part of the reads that ask for an item nobody else asks for: they always miss
	Slot     time.Duration // width of the time line; zero means none
	Log      bool          // every read is returned

	At   time.Time // of the first read; arrive sets it when it is zero
	Seed uint64    // set by arrive, another for each process
}

// Arrived is what came of them in one process.
type Arrived struct {
	Answers *Answers
	Slots   []Slot
	Reads   []Read
}

// Slot is what came of the reads of one stretch of time: by when they came, not by when they were answered.
type Slot struct{ Good, Bad int }

// Read is one read.
type Read struct {
	ID      int
	Version int       // that was returned; zero when there was an error
	At      time.Time // when it began
	Took    time.Duration
	Failed  bool // the error came before the deadline
}

const (
	// tick is how often reads are sent: those of a tick together. The runtime's timers do not keep shorter times.
	tick = 2 * time.Millisecond
	// late is how late the sender may be before its own delay counts as latency.
	late = 5 * time.Millisecond
	// mostWaiting bounds the reads of a process that wait.
	mostWaiting = 20_000
)

var errNotSent = errors.New("not sent: too many reads wait already")

var arriving = define("arrive", func(ctx context.Context, w *worker, p Arrivals) (*Arrived, error) {
	var (
		random  = rand.New(rand.NewPCG(p.Seed, 1))
		result  = &Arrived{Answers: newAnswers(), Slots: make([]Slot, slots(p))}
		mu      sync.Mutex // of the result's slots and reads
		waiting atomic.Int64
		reads   sync.WaitGroup
		pick    = picker(p, random)
	)
	w.sent.Reset()
	finish := func(due time.Time, read Read, item origin.Item, err error) {
		result.Answers.add(due, err)
		mu.Lock()
		defer mu.Unlock()
		if n := int(due.Sub(p.At) / max(p.Slot, 1)); p.Slot > 0 && n < len(result.Slots) {
			if err == nil {
				result.Slots[n].Good++
			} else {
				result.Slots[n].Bad++
			}
		}
		if p.Log {
			read.Version, read.Took = item.Version, time.Since(read.At)
			if err != nil {
				read.Version, read.Failed = 0, p.Deadline == 0 || read.Took < p.Deadline
			}
			result.Reads = append(result.Reads, read)
		}
	}
	sent := 0.0
	for at := p.At; at.Before(p.At.Add(p.Lasts)) && ctx.Err() == nil; at = at.Add(tick) {
		time.Sleep(time.Until(at))
		due := time.Now()
		if due.Sub(at) > late {
			due = at
		}
		for sent += p.Rate * tick.Seconds(); sent >= 1; sent-- {
			id := pick()
			read := Read{ID: id, At: time.Now()}
			if waiting.Add(1) > mostWaiting {
				waiting.Add(-1)
				finish(due, read, origin.Item{}, errNotSent)
				continue
			}
			reads.Go(func() {
				item, err := w.getWithin(ctx, read.At, p.Deadline, id, func() { waiting.Add(-1) })
				finish(due, read, item, err)
			})
		}
	}
	reads.Wait()
	result.Answers.Sent = w.sent.Sent()
	return result, ctx.Err()
})

// getWithin reads an item, within the deadline since it was due; zero means none. Not every client heeds one: nobody waits
// for the answer then. It calls over when the client has returned.
func (w *worker) getWithin(ctx context.Context, due time.Time, deadline time.Duration, id int, over func()) (origin.Item, error) {
	if deadline == 0 {
		defer over()
		return w.get(ctx, id)
	}
	end := due.Add(deadline)
	leaving, leave := context.WithDeadlineCause(ctx, end.Add(late), errTooLate)
	defer leave()
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	item, err := getOrLeave(leaving, func() (origin.Item, error) {
		defer over()
		return w.get(ctx, id)
	})
	if err == nil && time.Now().After(end.Add(late)) {
		err = errTooLate
	}
	return item, err
}

var errTooLate = errors.New("answered after the deadline")

func slots(p Arrivals) int {
	if p.Slot == 0 {
		return 0
	}
	return int((p.Lasts + p.Slot - 1) / p.Slot)
}

// picker draws the ids of the reads.
func picker(p Arrivals, random *rand.Rand) func() int {
	once := origin.Rows * int(1+p.Seed) * 1000 // far from all others, and from those of other processes
	draw := func() int { return random.IntN(p.Keys) }
	if p.Zipf > 1 {
		zipf := rand.NewZipf(random, p.Zipf, 1, uint64(p.Keys-1))
		draw = func() int { return int(zipf.Uint64()) }
	}
	return func() int {
		if p.Once > 0 && random.Float64() < p.Once {
			once++
			return once
		}
		return p.First + draw()
	}
}

// arrive has reads come at all processes for the same time, and returns what came of them together: all answers, the
// slots of all processes added up, and every read, if it was asked for.
func arrive(ctx context.Context, f Fleet, p Arrivals) (*Arrived, error) {
	if p.At.IsZero() {
		p.At = time.Now().Add(50 * time.Millisecond)
	}
	all, err := arriving.onAll(ctx, f, func(i int) Arrivals {
		own := p
		own.Seed = uint64(i)
		own.At = p.At.Add(time.Duration(i) * tick / time.Duration(len(f))) // not all at once
		return own
	})
	if err != nil {
		return nil, err
	}
	sum := &Arrived{Slots: make([]Slot, slots(p))}
	var answers []*Answers
	for _, one := range all {
		answers = append(answers, one.Answers)
		sum.Reads = append(sum.Reads, one.Reads...)
		for i, slot := range one.Slots {
			sum.Slots[i].Good += slot.Good
			sum.Slots[i].Bad += slot.Bad
		}
	}
	sum.Answers = merge(answers)
	return sum, nil
}
