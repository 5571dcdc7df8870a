package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// finite returns the report without figures and points that are no numbers: JSON cannot hold them, and no axis either. What
// is left out becomes an error of its measurement, so that a long run is not lost and nothing disappears silently.
func (r *Report) finite() *Report {
	clean := *r
	clean.Scenarios = slices.Clone(r.Scenarios)
	for i := range clean.Scenarios {
		s := &clean.Scenarios[i]
		s.Rows = slices.Clone(s.Rows)
		for k := range s.Rows {
			s.Rows[k] = s.Rows[k].finite()
		}
	}
	return &clean
}

func (m Measurement) finite() Measurement {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(m.Figures)) {
		if v := m.Figures[name]; !isNumber(v) {
			m.Figures = maps.Clone(m.Figures)
			delete(m.Figures, name)
			bad = append(bad, fmt.Sprintf("%s is %v", name, v))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Series)) {
		points := slices.DeleteFunc(slices.Clone(m.Series[name]), func(p Point) bool { return !isNumber(p.X) || !isNumber(p.Y) })
		if lost := len(m.Series[name]) - len(points); lost > 0 {
			m.Series = maps.Clone(m.Series)
			m.Series[name] = points
			bad = append(bad, fmt.Sprintf("%d of the points of %s are no numbers", lost, name))
		}
	}
	if len(bad) > 0 {
		if m.Error != "" {
			bad = append([]string{m.Error}, bad...)
		}
		m.Error = strings.Join(bad, "; ")
	}
	return m
}

func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
