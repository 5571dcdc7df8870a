package tasks

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnsAreTakenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts Turns
		var order []int // guarded by the turn
		waited := 0
		enter := func(ctx context.Context, name string) error {
			return ts.Enter(ctx, name, func() { waited++ })
		}
		if enter(t.Context(), "a") != nil || enter(t.Context(), "b") != nil || waited != 0 {
			t.Fatal("a free turn is not had at once")
		}
		why := errors.New("why")
		for i := range 10 {
			go func() {
				ctx, leave := context.WithCancelCause(t.Context())
				defer leave(nil)
				if i%2 == 1 { // leaves the line
					time.AfterFunc(time.Millisecond, func() { leave(why) })
				}
				switch err := enter(ctx, "a"); {
				case err == nil:
					order = append(order, i)
					ts.Leave("a")
				case i%2 == 0 || err != why:
					t.Errorf("caller %d got %v", i, err)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		ts.Leave("a")
		synctest.Wait()
		if !slices.Equal(order, []int{0, 2, 4, 6, 8}) || waited != 10 {
			t.Errorf("the order was %v, and %d waited", order, waited)
		}
		ts.Leave("b")
		if len(ts.lines) != 0 {
			t.Errorf("%d lines are left", len(ts.lines))
		}
	})
}

// A caller that leaves just when it is given the turn passes it on.
func TestATurnThatNobodyTakesIsPassedOn(t *testing.T) {
	var ts Turns
	ended, end := context.WithCancel(t.Context())
	end()
	for range 100 { // which of the two it sees first is chance
		first := ts.Enter(t.Context(), "a", nil)
		if first != nil {
			t.Fatal("the turn is not free: ", first)
		}
		if ts.Enter(ended, "a", func() { ts.Leave("a") }) == nil {
			ts.Leave("a")
		}
	}
}
