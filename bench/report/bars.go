package report

import (
	"fmt"
	"math"
	"strings"
)

const barHeight, barStep = 14.0, 23.0

// bars draws a bar for each row: the median, a thin line from the least to the greatest round, the number behind them.
func bars(p *palette, c Chart, f Figure, t table, colour paint, inline bool) string {
	d := &drawing{paint: colour}
	var values []float64
	names, labels := 0.0, 0.0
	for _, r := range t.Rows {
		names = max(names, p.looks[r.Contestant].widthOf(r.Contestant, fontSize))
		if cell := r.Cells[0]; cell.Known {
			values = append(values, cell.Min, cell.Max)
			labels = max(labels, p.looks[r.Contestant].widthOf(cell.String(), fontSize))
		}
	}
	names = min(names, 150)

	a := linearAxis(values, true)
	if c.YLog {
		a = logAxis(values, true)
	}
	a.From, a.To = margin+names+8, pictureWidth-margin-labels-8
	top := d.heading(c.Title, subtitle(t.Case, f.Best, a.log, inline))
	bottom := top + barStep*float64(len(t.Rows)) + 4
	for _, v := range a.ticks(int((a.To - a.From) / 48)) {
		d.line(a.at(v), top, a.at(v), bottom, "grid", 1, "")
		d.text(a.at(v), bottom+16, "middle", "muted", `font-size="11"`, tick(v))
	}
	base := a.at(0) // of a logarithmic axis: its beginning
	var noted []row
	for i, r := range t.Rows {
		if !d.bar(a, base, top+4+barStep*float64(i), names, p.looks[r.Contestant], r) {
			noted = append(noted, r)
		}
	}
	d.line(base, top, base, bottom, "muted", 1, "")
	d.text((a.From+a.To)/2, bottom+33, "middle", "muted", `font-size="12"`, c.value(f))
	return d.finish(c.Title+", "+t.Case, d.notes(bottom+42, noted), inline)
}

// bar draws a row. It reports whether there was room for its errors, if only for their beginning.
func (d *drawing) bar(a axis, base, y, names float64, l look, r row) bool {
	cell, middle := r.Cells[0], y+barHeight/2
	fmt.Fprintf(d, "<g><title>%s</title>\n", escape(r.summary()))
	d.text(margin+names, middle+4.5, "end", "ink", l.weight(), shortened(r.Contestant, names, fontSize))
	end := base
	if cell.Known {
		end = a.at(cell.Median)
		if width := math.Abs(end - base); width > 0 {
			fmt.Fprintf(d, `<rect x="%s" y="%s" width="%s" height="%s" rx="2" style="fill:%s"/>`+"\n",
				px(min(base, end)), px(y), px(width), px(barHeight), d.paint(l.role))
		}
		if lo, hi := a.at(cell.Min), a.at(cell.Max); hi-lo >= 3 { // a shorter one is a blot
			d.line(lo, middle, hi, middle, "ink", 1.25, "")
			d.line(lo, middle-3, lo, middle+3, "ink", 1.25, "")
			d.line(hi, middle-3, hi, middle+3, "ink", 1.25, "")
			end = max(end, hi)
		}
		d.text(end+6, middle+4.5, "start", "ink", l.weight(), cell.String())
		end += 12 + l.widthOf(cell.String(), fontSize)
	}
	text := strings.Join(r.Errors, "; ")
	room := pictureWidth - margin - end - 6
	fits := text == "" || room > 60 || widthOf(text, 11) <= room
	switch {
	case text != "" && fits:
		d.text(end+6, middle+4, "start", "error", `font-size="11"`, shortened(text, room, 11))
	case text == "" && !cell.Known:
		d.text(end+6, middle+4.5, "start", "muted", "", "–")
	}
	d.WriteString("</g>\n")
	return fits
}

// summary is what a pointer over the bar shows.
func (r row) summary() string {
	var parts []string
	if cell := r.Cells[0]; cell.Known {
		parts = append(parts, cell.String()+cell.tail())
	}
	return r.Contestant + ": " + strings.Join(append(parts, r.Errors...), "; ")
}
