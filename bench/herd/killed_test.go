package herd

import (
	"testing"
	"time"
)

func TestKilled(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct {
		contestant  string
		least, most float64
	}{
		{"stockade", 1, 2.6},   // the lease lives for 2 s, and may have been renewed a moment ago
		{"rockscache", 2, 4.5}, // its lock lives for 3 s
	} {
		t.Run(tc.contestant, func(t *testing.T) {
			got := measured(t, b, killedCase(3, 3, time.Second, 1, nil), tc.contestant).Figures
			if got["errors"] != 0 || got["loads"] != 1 {
				t.Errorf("%v errors, %v loads, want 0 and 1", got["errors"], got["loads"])
			}
			if got["first"] < tc.least || got["last"] > tc.most || got["first"] > got["last"] {
				t.Errorf("answers between %v and %v s, want them between %v and %v", got["first"], got["last"], tc.least, tc.most)
			}
		})
	}
}
