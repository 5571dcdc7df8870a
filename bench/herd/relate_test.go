package herd

import (
	"testing"

	"github.com/stockade-cache/stockade/bench/report"
)

func TestRelate(t *testing.T) {
	row := func(name, contestant string, round int, figures map[string]float64) report.Measurement {
		return report.Measurement{Case: name, Contestant: contestant, Round: round, Figures: figures}
	}
	rows := []report.Measurement{
		row("a", "none", 1, map[string]float64{"loads": 100}),
		row("a", "stockade", 1, map[string]float64{"loads": 5}),
		row("a", "none", 2, map[string]float64{"loads": 30}),
		row("a", "stockade", 2, map[string]float64{"loads": 0}),
		row("b", "stockade", 1, map[string]float64{"loads": 5}),
		row("b", "failed", 1, nil),
	}
	relate("loads", "fewer", "none", func(own, none float64) float64 { return none / own })(rows)
	for i, want := range []float64{1, 20, 1, 0, 0, 0} {
		if got := rows[i].Figures["fewer"]; got != want {
			t.Errorf("row %d: %v, want %v", i, got, want)
		}
	}
	if _, ok := rows[3].Figures["fewer"]; ok {
		t.Error("a division by zero is a figure")
	}
}
