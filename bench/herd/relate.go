package herd

import (
	"math"

	"github.com/stockade-cache/stockade/bench/report"
)

// relate adds a figure that compares another one with what a contestant reached in the same case and round. Where that
// contestant has none, or the comparison gives no number, the figure is missing.
func relate(of, as, with string, compare func(own, other float64) float64) func([]report.Measurement) {
	return func(rows []report.Measurement) {
		type round struct {
			name   string
			number int
		}
		others := map[round]float64{}
		for _, row := range rows {
			if value, ok := row.Figures[of]; ok && row.Contestant == with {
				others[round{row.Case, row.Round}] = value
			}
		}
		for _, row := range rows {
			own, measured := row.Figures[of]
			other, known := others[round{row.Case, row.Round}]
			if ratio := compare(own, other); measured && known && !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
				row.Figures[as] = ratio
			}
		}
	}
}
