package report

import (
	"fmt"
	"slices"
	"strings"
)

// table is what one case of a scenario comes to: a row for each contestant, in the order of their first appearance.
type table struct {
	Case    string
	Figures []Figure
	Rows    []row
}

// row is one contestant.
type row struct {
	Contestant string
	Cells      []cell // one for each of the table's Figures
	Errors     []string
}

// cell is one figure of a contestant over the rounds that have it.
type cell struct {
	spread
	Known bool // at least one round has it
	Best  bool // no other contestant of the case is better, and some are worse
}

// tables are the cases of a scenario, in the order of their first appearance.
func (s *Scenario) tables() []table {
	var tables []table
	for _, name := range names(s.Rows, func(m Measurement) string { return m.Case }) {
		tables = append(tables, s.table(name))
	}
	return tables
}

func (s *Scenario) table(name string) table {
	rows := s.of(name)
	t := table{Case: name, Figures: s.Figures}
	for _, contestant := range names(rows, func(m Measurement) string { return m.Contestant }) {
		rounds := slices.DeleteFunc(slices.Clone(rows), func(m Measurement) bool { return m.Contestant != contestant })
		r := row{Contestant: contestant, Errors: failures(rounds)}
		for _, f := range s.Figures {
			r.Cells = append(r.Cells, cellOf(rounds, f.Name))
		}
		t.Rows = append(t.Rows, r)
	}
	for i, f := range s.Figures {
		markBest(t.Rows, i, f.Best)
	}
	return t
}

// of returns the measurements of a case.
func (s *Scenario) of(name string) []Measurement {
	return slices.DeleteFunc(slices.Clone(s.Rows), func(m Measurement) bool { return m.Case != name })
}

// names are what key says of the measurements, each once, in their order.
func names(rows []Measurement, key func(Measurement) string) []string {
	var all []string
	for _, m := range rows {
		if name := key(m); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func cellOf(rounds []Measurement, figure string) cell {
	var values []float64
	for _, m := range rounds {
		if v, ok := m.Figures[figure]; ok {
			values = append(values, v)
		}
	}
	return cell{spread: spreadOf(values), Known: len(values) > 0}
}

// failures are the errors of a contestant's rounds, each once. Which rounds is said unless it is all of them.
func failures(rounds []Measurement) []string {
	var all []string
	for _, text := range names(rounds, func(m Measurement) string { return m.Error }) {
		if text == "" {
			continue
		}
		var in []string
		for _, m := range rounds {
			if m.Error == text {
				in = append(in, fmt.Sprint(m.Round))
			}
		}
		switch {
		case len(in) == len(rounds):
			all = append(all, "error: "+text)
		case len(in) == 1:
			all = append(all, "error in round "+in[0]+": "+text)
		default:
			all = append(all, "error in rounds "+strings.Join(in, ", ")+": "+text)
		}
	}
	return all
}

// markBest compares what the reader sees, so two medians that are printed alike are equally good. Who had an error is not the
// best: its figures may be good because it did not do the work. Where all are alike nobody is.
func markBest(rows []row, i int, best Best) {
	if best == Either {
		return
	}
	var top *cell
	alike := true
	for k := range rows {
		c := &rows[k].Cells[i]
		if !c.Known || len(rows[k].Errors) > 0 {
			continue
		}
		if top != nil && number(c.Median) != number(top.Median) {
			alike = false
		}
		if top == nil || (best == Lower && c.Median < top.Median) || (best == Higher && c.Median > top.Median) {
			top = c
		}
	}
	if top == nil || alike {
		return
	}
	for k := range rows {
		c := &rows[k].Cells[i]
		c.Best = c.Known && len(rows[k].Errors) == 0 && number(c.Median) == number(top.Median)
	}
}
