package herd

import (
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

func TestInvalidation(t *testing.T) {
	b := newBench(t)
	const n = 6
	c := invalidationCase(n, 60*time.Millisecond, 1, nil)
	t.Run("stockade", func(t *testing.T) {
		got := measured(t, b, c, "stockade").Figures
		for _, name := range []string{"warmSame", "warmOther", "duringSame", "duringOther", "afterSame", "afterOther", "longest", "errors"} {
			if value, ok := got[name]; value != 0 || !ok {
				t.Errorf("%s is %v, %v, want 0", name, value, ok)
			}
		}
	})
	t.Run("none", func(t *testing.T) { // the load that is over last is stored
		got := measured(t, b, c, "none").Figures
		if got["warmSame"] != 0 || got["warmOther"] != 0 {
			t.Errorf("%v and %v stale without a load, want none", got["warmSame"], got["warmOther"])
		}
		if got["afterSame"] != n || got["afterOther"] != n {
			t.Errorf("%v and %v stale after the load, want all %d", got["afterSame"], got["afterOther"], n)
		}
	})
}

var testStart = time.Now()

// moment is a time, in milliseconds.
func moment(ms int) time.Time { return testStart.Add(time.Duration(ms) * time.Millisecond) }

func invalidated(id, version, began, done int) Invalidated {
	return Invalidated{Item: origin.Item{ID: id, Version: version}, Began: moment(began), Done: moment(done)}
}

func seen(id, version, last int) *Seen { return &Seen{ID: id, Version: version, Last: moment(last)} }

func TestJudge(t *testing.T) {
	invalidations := []Invalidated{invalidated(1, 5, 8, 10), invalidated(2, 9, 8, 10)}
	for name, tc := range map[string]struct {
		seen    []*Seen
		stale   int
		longest time.Duration
	}{
		"nothing":                {nil, 0, 0},
		"old before":             {[]*Seen{seen(1, 4, 10), seen(1, 5, 30)}, 0, 0},
		"old after":              {[]*Seen{seen(1, 4, 13), seen(1, 5, 30)}, 1, 3 * time.Millisecond},
		"older ones count once":  {[]*Seen{seen(1, 4, 13), seen(1, 3, 12)}, 1, 3 * time.Millisecond},
		"newer":                  {[]*Seen{seen(1, 6, 13)}, 0, 0},
		"another item's version": {[]*Seen{seen(2, 9, 20), seen(3, 1, 20)}, 0, 0},
		"both":                   {[]*Seen{seen(1, 4, 11), seen(2, 5, 17)}, 2, 7 * time.Millisecond},
	} {
		if stale, longest := judge(invalidations, tc.seen); stale != tc.stale || longest != tc.longest {
			t.Errorf("%s: got %d, %v, want %d, %v", name, stale, longest, tc.stale, tc.longest)
		}
	}
}

func TestObserved(t *testing.T) {
	invalidations := []Invalidated{invalidated(1, 2, 8, 10), invalidated(2, 2, 8, 10), invalidated(3, 2, 8, 10)}
	got := observed(invalidations, []*Seen{seen(1, 2, 12), seen(1, 1, 3), seen(2, 1, 10)})
	if len(got) != 1 || got[0].Item.ID != 1 {
		t.Errorf("got %v, want that of item 1", got)
	}
}

func TestInFlight(t *testing.T) {
	const load = 60 * time.Millisecond
	begun := []origin.Begun{{ID: 1, At: moment(70)}, {ID: 1, At: moment(0)}}
	for name, tc := range map[string]struct {
		invalidation Invalidated
		want         int
	}{
		"during":                {invalidated(1, 2, 30, 32), 1},
		"the load may read it":  {invalidated(1, 2, 3, 32), 0},
		"the load is over":      {invalidated(1, 2, 30, 62), 0},
		"before the load":       {invalidated(1, 2, -5, -3), 0},
		"nobody loads the item": {invalidated(2, 2, 30, 32), 0},
	} {
		if got := inFlight([]Invalidated{tc.invalidation}, begun, load); len(got) != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestTurns(t *testing.T) {
	turns := turns{Keys: 5, AtOnce: 2, At: moment(0), Lasts: 10 * time.Millisecond}
	for n, want := range []int{0, 0, 10, 10, 20} {
		if got := turns.of(n); !got.Equal(moment(want)) {
			t.Errorf("item %d has its turn after %v, want %d ms", n, got.Sub(moment(0)), want)
		}
	}
}
