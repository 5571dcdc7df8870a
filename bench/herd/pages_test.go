package herd

import (
	"testing"
	"time"
)

func TestPages(t *testing.T) {
	b := newBench(t)
	for contestant, runs := range map[string]float64{"none": 20, "stockade": 1} {
		t.Run(contestant, func(t *testing.T) {
			c := pagesCase(2, 20, 100*time.Millisecond, 200*time.Millisecond, 1)
			got := measured(t, b, c, contestant).Figures
			if got["runs"] != runs || got["errors"] != 0 {
				t.Errorf("%v runs, %v errors, want %v and 0", got["runs"], got["errors"], runs)
			}
			if cached := contestant == "stockade"; cached != (got["again"] == 0) || cached != (got["hit"] < 100) {
				t.Errorf("%v runs while the page is cached, a hit takes %v ms", got["again"], got["hit"])
			}
			if got["p50"] < 100 || got["hits"] == 0 {
				t.Errorf("p50 is %v ms with a handler of 100 ms, %v hits a second", got["p50"], got["hits"])
			}
		})
	}
}
