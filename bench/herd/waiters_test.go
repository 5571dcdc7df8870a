package herd

import (
	"testing"
	"time"
)

func TestWaiters(t *testing.T) {
	t.Parallel() // it mostly waits
	b := newBench(t)
	for contestant, loads := range map[string]float64{"singleflight": 2, "stockade": 1} {
		got := measured(t, b, waitersCase(300, 600*time.Millisecond, 1, nil), contestant).Figures
		if got["loads"] != loads || got["answered"] != 100 {
			t.Errorf("%s: %v loads, %v %% answered, want %v and 100", contestant, got["loads"], got["answered"], loads)
		}
		if got["memory"] < 2 || got["memory"] > 20 || got["goroutines"] < 1 || got["goroutines"] > 1.2 {
			t.Errorf("%s: %v KB and %v goroutines a waiter", contestant, got["memory"], got["goroutines"])
		}
	}
}
