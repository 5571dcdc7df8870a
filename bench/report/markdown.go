package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Column is a figure for a page that quotes the report: that of a scenario's first case that has it.
type Column struct {
	Scenario, Figure, Title string
	Failed                  string // stands for the figure of who has an error and no figure; "error" when empty
}

// Markdown is a table of some figures: a row for each contestant that has one, in the report's order. The best of a column is
// bold; a figure beside which there was an error has a †.
func (r *Report) Markdown(columns []Column) (string, error) {
	var b strings.Builder
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.Title)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	quoted := make([]map[string]string, len(columns))
	for i, c := range columns {
		var err error
		if quoted[i], err = r.column(c); err != nil {
			return "", err
		}
	}
	for _, p := range r.Peers {
		if !slices.ContainsFunc(quoted, func(cells map[string]string) bool { return cells[p.Name] != "" }) {
			continue
		}
		fmt.Fprintf(&b, "| %s |", p.Name)
		for _, cells := range quoted {
			fmt.Fprintf(&b, " %s |", cmp.Or(cells[p.Name], "–"))
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// column returns what is quoted of each contestant.
func (r *Report) column(c Column) (map[string]string, error) {
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		if s.Name != c.Scenario {
			continue
		}
		for _, t := range s.tables() {
			for at, f := range t.Figures {
				if f.Name != c.Figure || find(t.Rows, at, func(row) bool { return true }, cmp.Or(f.Best, Lower)) == nil {
					continue
				}
				cells := map[string]string{}
				for _, row := range t.Rows {
					cells[row.Contestant] = quote(row, row.Cells[at], f.Unit, cmp.Or(c.Failed, "error"))
				}
				return cells, nil
			}
		}
	}
	return nil, fmt.Errorf("the report has no figure %s of %s", c.Figure, c.Scenario)
}

func quote(r row, c cell, unit, failed string) string {
	if !c.Known {
		if len(r.Errors) > 0 {
			return failed
		}
		return ""
	}
	text := strings.TrimSpace(c.String() + " " + unit)
	if c.Best {
		text = "**" + text + "**"
	}
	if len(r.Errors) > 0 {
		text += " †"
	}
	return text
}

// Picture is a chart for a page that quotes the report, in light and dark. The folder is where the report was written, as that
// page links it; the chart is SCENARIO-CHART, or SCENARIO-CHART-CASE as its file is called.
func Picture(folder, chart, about string) string {
	file := folder + "/charts/" + chart
	return fmt.Sprintf(`<picture><source media="(prefers-color-scheme: dark)" srcset="%s-dark.svg"><img alt="%s" src="%s-light.svg"></picture>`, file, about, file)
}
