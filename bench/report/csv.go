package report

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
)

// csv is long and narrow: a line for each figure of each measurement, and one without a figure for a measurement that has only an
// error. Series are in report.json.
func (r *Report) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"scenario", "case", "contestant", "round", "figure", "unit", "value", "error"})
	for _, s := range r.Scenarios {
		units := map[string]string{}
		for _, f := range s.Figures {
			units[f.Name] = f.Unit
		}
		for _, m := range s.Rows {
			line := func(figure, value string) {
				_ = w.Write([]string{s.Name, m.Case, m.Contestant, strconv.Itoa(m.Round), figure, units[figure], value, m.Error})
			}
			for _, figure := range slices.Sorted(maps.Keys(m.Figures)) {
				line(figure, strconv.FormatFloat(m.Figures[figure], 'g', -1, 64))
			}
			if len(m.Figures) == 0 {
				line("", "")
			}
		}
	}
	w.Flush()
	return b.Bytes()
}
