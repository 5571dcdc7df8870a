package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// picture is a chart of one case.
type picture struct {
	Case string
	Name string // of its files
	Draw func(colour paint, inline bool) string
}

// pictures are all charts of a scenario that have something to show, the cases of each one behind another.
func (s *Scenario) pictures(p *palette, taken slugs) []picture {
	var all []picture
	for _, c := range s.Charts {
		cases := names(s.Rows, func(m Measurement) string { return m.Case })
		cases = slices.DeleteFunc(cases, func(name string) bool { return len(c.Cases) > 0 && !slices.Contains(c.Cases, name) })
		for i, of := range cases {
			draw := s.drawer(p, c, of)
			if draw == nil {
				continue
			}
			name := s.Name + "-" + c.Name
			if len(cases) > 1 {
				name += "-" + cmp.Or(slug(of), fmt.Sprint(i+1))
			}
			all = append(all, picture{of, taken.unique(name), draw})
		}
	}
	return all
}

// drawer returns nil for a chart without a contestant.
func (s *Scenario) drawer(p *palette, c Chart, of string) func(paint, bool) string {
	only := Scenario{Rows: slices.DeleteFunc(s.of(of), func(m Measurement) bool {
		return len(c.Contestants) > 0 && !slices.Contains(c.Contestants, m.Contestant)
	})}
	f := Figure{Name: c.Of}
	if i := slices.IndexFunc(s.Figures, func(f Figure) bool { return f.Name == c.Of }); i >= 0 {
		f = s.Figures[i]
	}
	only.Figures = []Figure{f}
	t := only.table(of)
	if len(t.Rows) == 0 {
		return nil
	}
	if c.Kind == Bars {
		return func(colour paint, inline bool) string { return bars(p, c, f, t, colour, inline) }
	}

	var curves []curve
	var failed []row
	for _, r := range t.Rows {
		rounds := slices.DeleteFunc(slices.Clone(only.Rows), func(m Measurement) bool { return m.Contestant != r.Contestant })
		if points := middle(rounds, c.Of); len(points) > 0 {
			curves = append(curves, curve{r.Contestant, points})
		}
		if len(r.Errors) > 0 {
			failed = append(failed, r)
		}
	}
	if len(curves) == 0 {
		return nil
	}
	return func(colour paint, inline bool) string {
		return lines(p, c, slices.Clone(curves), failed, of, colour, inline)
	}
}

// middle returns the series of the round whose mean is the median of the rounds' means. A round is shown as it was: a mean of
// several would smooth away what happened in each.
func middle(rounds []Measurement, series string) []Point {
	var all [][]Point
	for _, m := range rounds {
		if points := m.Series[series]; len(points) > 0 {
			all = append(all, points)
		}
	}
	if len(all) == 0 {
		return nil
	}
	mean := func(points []Point) float64 {
		sum := 0.0
		for _, p := range points {
			sum += p.Y / float64(len(points))
		}
		return sum
	}
	slices.SortStableFunc(all, func(a, b []Point) int { return cmp.Compare(mean(a), mean(b)) })
	return all[(len(all)-1)/2]
}

// value is the title of the axis of bars.
func (c Chart) value(f Figure) string {
	return cmp.Or(c.YTitle, f.head())
}

// subtitle is what is below a chart's title. On the page the case is above it already.
func subtitle(of string, best Best, log, inline bool) string {
	var parts []string
	if of != "" && !inline {
		parts = append(parts, of)
	}
	if best != Either {
		parts = append(parts, string(best)+" is better")
	}
	if log {
		parts = append(parts, "logarithmic")
	}
	return strings.Join(parts, " · ")
}

func scaled(title string, log bool) string {
	if log {
		return strings.TrimSpace(title + " (logarithmic)")
	}
	return title
}

// slugs are the names that are in use.
type slugs map[string]bool

func (taken slugs) unique(s string) string {
	name := cmp.Or(slug(s), "x")
	for base, n := name, 2; taken[name]; n++ {
		name = fmt.Sprint(base, "-", n)
	}
	taken[name] = true
	return name
}

// slug makes a file name of what is between the letters and digits of ASCII.
func slug(s string) string {
	parts := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	name := strings.Join(parts, "-")
	return name[:min(len(name), 80)]
}
