package herd

import (
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/report"
)

func TestRelateHits(t *testing.T) {
	row := func(of string, round int, contestant string, hits float64) report.Measurement {
		return report.Measurement{Case: of, Round: round, Contestant: contestant, Figures: map[string]float64{"hits": hits}}
	}
	rows := []report.Measurement{
		row("a", 1, "stockade", 300), // before those it is compared with
		row("a", 1, "none", 100),
		row("a", 1, "rueidis", 200),
		row("a", 2, "none", 50),
		row("a", 2, "stockade", 300),
		row("b", 1, "stockade", 300),
		row("b", 1, "none", 0),
		{Case: "b", Round: 1, Contestant: "rueidis", Error: "it failed"},
	}
	relateHits(rows)
	for i, want := range []struct{ goredis, rueidis float64 }{
		{3, 1.5}, {1, 0.5}, {2, 1}, {1, 0}, {6, 0}, {0, 0}, {0, 0}, {0, 0},
	} {
		if got := rows[i].Figures; got["goredis"] != want.goredis || got["rueidis"] != want.rueidis {
			t.Errorf("row %d: %v, want × go-redis %v and × rueidis %v", i, got, want.goredis, want.rueidis)
		}
	}
}

// Rows and charts find a case by its name.
func TestWarmCasesAreNamedApart(t *testing.T) {
	for _, p := range []Profile{{}, {Full: true}, {Callers: 7}} {
		seen := map[string]bool{}
		for _, c := range throughput().Cases(p) {
			if seen[c.Name] || len(c.Contestants) == 0 {
				t.Errorf("%+v: the case %q has %d contestants, and its name is taken: %v", p, c.Name, len(c.Contestants), seen[c.Name])
			}
			seen[c.Name] = true
		}
		for _, chart := range throughput().Charts {
			for _, name := range chart.Cases {
				if p.Full && !seen[name] {
					t.Errorf("the chart %q is of %q, which is not measured", chart.Name, name)
				}
			}
		}
	}
}

func TestHits(t *testing.T) {
	b := newBench(t)
	for _, h := range []warmReads{{callers: 8, size: 100, keys: 20}, {callers: 2, size: 1 << 10, keys: 20, structs: true}} {
		for _, contestant := range []string{"none", "stockade"} {
			got := measured(t, b, warmCase(h, 60*time.Millisecond, 1, nil), contestant).Figures
			if got["hits"] < 100 || got["commands"] <= 0 || got["commands"] > 1.01 {
				t.Errorf("%v, %s: %v hits a second with %v commands each", h, contestant, got["hits"], got["commands"])
			}
		}
	}
	inside := warmReads{callers: 1, size: 100, keys: 20, inside: true}
	got := measured(t, b, warmCase(inside, 60*time.Millisecond, 1, nil), "stockade local").Figures
	if got["commands"] > 0.01 || got["allocations"] > 0.1 {
		t.Errorf("in the process: %v commands and %v allocations a hit", got["commands"], got["allocations"])
	}
}
