package report

// tile is a scenario in one number: its first figure that can be better or worse, in its first case.
type tile struct {
	ID, Heading, Case string
	Figure            Figure
	Ours              string // who the number is of
	Value             string
	Compared          []compared
}

type compared struct{ Label, Name, Value string }

// newTile shows "stockade" beside "none" and beside the best of the others, whether that is better or not.
func newTile(p part) (tile, bool) {
	if len(p.Cases) == 0 {
		return tile{}, false
	}
	t := p.Cases[0]
	for i, f := range t.Figures {
		if f.Best == Either {
			continue
		}
		us := find(t.Rows, i, func(r row) bool { return r.Contestant == "stockade" }, f.Best)
		if us == nil {
			us = find(t.Rows, i, func(r row) bool { return isOurs(r.Contestant) }, f.Best)
		}
		if us == nil {
			continue
		}
		shown := tile{ID: p.ID, Heading: p.heading(), Case: t.Case, Figure: f, Ours: us.Contestant, Value: us.Cells[i].String()}
		none := find(t.Rows, i, func(r row) bool { return r.Contestant == "none" }, f.Best)
		if none != nil {
			shown.Compared = append(shown.Compared, compared{"", "none", none.Cells[i].String()})
		}
		rival := find(t.Rows, i, func(r row) bool { return !isOurs(r.Contestant) && r.Contestant != "none" && r.Contestant != "theory" }, f.Best)
		if rival != nil {
			shown.Compared = append(shown.Compared, compared{"best other: ", rival.Contestant, rival.Cells[i].String()})
		}
		return shown, true
	}
	return tile{}, false
}

// find returns the best of the wanted rows that have the figure and no error.
func find(rows []row, i int, want func(row) bool, best Best) *row {
	var found *row
	for k := range rows {
		r := &rows[k]
		if !want(*r) || !r.Cells[i].Known || len(r.Errors) > 0 {
			continue
		}
		if found == nil || (best == Lower && r.Cells[i].Median < found.Cells[i].Median) || (best == Higher && r.Cells[i].Median > found.Cells[i].Median) {
			found = r
		}
	}
	return found
}
