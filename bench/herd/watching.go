package herd

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

// turns is when what happens to which items: a few at a time have their turn together, by the machine's clock, so that
// processes need no word from each other.
type turns struct {
	First, Keys int // the items
	AtOnce      int // items that have their turn together
	At          time.Time
	Lasts       time.Duration // of one turn
}

// of returns when the n-th item has its turn.
func (t turns) of(n int) time.Time {
	return t.At.Add(time.Duration(n/t.AtOnce) * t.Lasts)
}

// each calls do for every item in its turn, and returns when all have returned.
func (t turns) each(ctx context.Context, do func(n, id int, at time.Time)) {
	var doing sync.WaitGroup
	for n := 0; n < t.Keys && ctx.Err() == nil; n++ {
		at := t.of(n)
		time.Sleep(time.Until(at))
		doing.Go(func() { do(n, t.First+n, at) })
	}
	doing.Wait()
}

// watching reads every item in its turn again and again, and says which versions it saw.
var watching = define("watch", func(ctx context.Context, w *worker, p watchParams) (*watched, error) {
	result := &watched{Answers: newAnswers()}
	var mu sync.Mutex
	seen := map[[2]int]*Seen{}
	read := func(id int) {
		began := time.Now()
		item, err := w.get(ctx, id)
		result.Answers.add(began, err)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		key := [2]int{id, item.Version}
		if seen[key] == nil {
			seen[key] = &Seen{ID: id, Version: item.Version}
			result.Seen = append(result.Seen, seen[key])
		}
		if began.After(seen[key].Last) {
			seen[key].Last = began
		}
	}
	p.Turns.each(ctx, func(n, id int, at time.Time) {
		var reads sync.WaitGroup
		if p.Leads && n%2 == p.Part {
			reads.Go(func() { read(id) })
		}
		time.Sleep(time.Until(at.Add(p.From)))
		for end := at.Add(p.Until); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(p.Pause) {
			done := make(chan struct{})
			reads.Go(func() {
				defer close(done)
				read(id)
			})
			select {
			case <-done:
			case <-time.After(p.Hold):
			}
		}
		reads.Wait()
	})
	return result, nil
})

type watchParams struct {
	Turns       turns
	From, Until time.Duration // of the turn: when items are read
	Pause       time.Duration // between reads
	Hold        time.Duration // how long a read may hold up the next one
	Leads       bool          // the first read comes as the turn begins, in one process for the even items and in another for the odd ones
	Part        int           // 0 leads the even ones
}

type watched struct {
	Answers *Answers
	Seen    []*Seen
}

// Seen is a version of an item that a process read.
type Seen struct {
	ID, Version int
	Last        time.Time // when the last read began that returned it
}

// invalidating writes every item in its turn, and invalidates it.
var invalidating = define("invalidate", func(ctx context.Context, w *worker, p invalidateParams) (*invalidations, error) {
	result := &invalidations{Answers: newAnswers()}
	var mu sync.Mutex
	p.Turns.each(ctx, func(_, id int, at time.Time) {
		time.Sleep(time.Until(at.Add(p.After)))
		one, err := w.change(ctx, id)
		result.Answers.add(one.Began, err)
		if err != nil {
			return // whoever invalidates knows it, and nothing is promised
		}
		mu.Lock()
		defer mu.Unlock()
		result.Done = append(result.Done, one)
	})
	return result, nil
})

type invalidateParams struct {
	Turns turns
	After time.Duration // the beginning of the turn
}

type invalidations struct {
	Answers *Answers
	Done    []Invalidated // the good ones
}

// judge returns after how many invalidations an older version was returned to a read that began later, and how long after
// its invalidation such a read began at the latest.
func judge(all []Invalidated, seen []*Seen) (stale int, longest time.Duration) {
	for _, invalidation := range all {
		late := time.Duration(0) // the latest stale read of this one
		for _, s := range seen {
			if s.ID == invalidation.Item.ID && s.Version < invalidation.Item.Version {
				late = max(late, s.Last.Sub(invalidation.Done))
			}
		}
		if late > 0 {
			stale++
		}
		longest = max(longest, late)
	}
	return stale, longest
}

// observed returns those invalidations after which the process began a read.
func observed(all []Invalidated, seen []*Seen) []Invalidated {
	last := map[int]time.Time{}
	for _, s := range seen {
		if s.Last.After(last[s.ID]) {
			last[s.ID] = s.Last
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(i Invalidated) bool { return !last[i.Item.ID].After(i.Done) })
}

// inFlight returns those invalidations during which a load ran that had begun before: it has read the old version.
func inFlight(all []Invalidated, begun []origin.Begun, load time.Duration) []Invalidated {
	const reads = 5 * time.Millisecond // a load takes a moment to read the row
	first := map[int]time.Time{}
	for _, b := range begun {
		if first[b.ID].IsZero() || b.At.Before(first[b.ID]) {
			first[b.ID] = b.At
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(i Invalidated) bool {
		at, ok := first[i.Item.ID]
		return !ok || i.Began.Sub(at) < reads || i.Done.Sub(at) > load
	})
}
