package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const plotHeight, labelStep = 250.0, 16.0

// curve is the line of a contestant.
type curve struct {
	name   string
	points []Point
}

// lines draws a line for each contestant, with its name on the right, in the order in which the lines end.
func lines(p *palette, c Chart, curves []curve, failed []row, of string, colour paint, inline bool) string {
	d := &drawing{paint: colour}
	var xs, ys []float64
	names := 0.0
	for _, l := range curves {
		names = max(names, p.looks[l.name].widthOf(l.name, 12))
		for _, point := range l.points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	names = min(names, 130)
	x, y := linearAxis(xs, false), linearAxis(ys, true)
	if c.XLog {
		x = logAxis(xs, false)
	}
	if c.YLog {
		y = logAxis(ys, true)
	}

	top := d.heading(c.Title, subtitle(of, Either, false, inline)) + 18
	bottom := top + max(plotHeight, labelStep*float64(len(curves)))
	y.From, y.To = bottom, top
	left, yTicks := 0.0, y.ticks(6)
	if y.log && slices.Min(ys) <= 0 { // zeros are drawn at the end of the axis
		yTicks = slices.DeleteFunc(yTicks, func(v float64) bool { return y.at(v) > bottom-14 })
		yTicks = append(yTicks, 0)
	}
	for _, v := range yTicks {
		left = max(left, widthOf(tick(v), 11))
	}
	x.From, x.To = margin+left+8, pictureWidth-margin-names-36
	d.frame(c, x, y, yTicks)

	slices.SortStableFunc(curves, func(a, b curve) int { return cmp.Compare(rank(p, a), rank(p, b)) })
	for _, l := range curves {
		d.curve(x, y, p.looks[l.name], l)
	}
	d.labels(p, x.To+10, y, names, curves)
	return d.finish(c.Title+", "+of, d.notes(bottom+42, failed), inline)
}

// frame draws the axes.
func (d *drawing) frame(c Chart, x, y axis, yTicks []float64) {
	d.text(margin, y.To-9, "start", "muted", `font-size="12"`, scaled(c.YTitle, y.log))
	for _, v := range yTicks {
		d.line(x.From, y.at(v), x.To, y.at(v), "grid", 1, "")
		d.text(x.From-6, y.at(v)+4, "end", "muted", `font-size="11"`, tick(v))
	}
	for _, v := range x.ticks(int((x.To - x.From) / 50)) {
		d.line(x.at(v), y.From, x.at(v), y.From+4, "muted", 1, "")
		d.text(x.at(v), y.From+17, "middle", "muted", `font-size="11"`, tick(v))
	}
	d.line(x.From, y.From, x.To, y.From, "muted", 1, "")
	d.text((x.From+x.To)/2, y.From+34, "middle", "muted", `font-size="12"`, scaled(c.XTitle, x.log))
}

// rank is the order of drawing: ours come last, above the others.
func rank(p *palette, l curve) int {
	switch {
	case l.name == "stockade":
		return 2
	case p.looks[l.name].ours:
		return 1
	}
	return 0
}

func (l look) width() float64 {
	if l.ours {
		return 2.75
	}
	return 1.75
}

// weight of a name: ours are bold.
func (l look) weight() string {
	if l.ours {
		return `font-weight="600"`
	}
	return ""
}

func (l look) widthOf(s string, size float64) float64 {
	if l.ours {
		size *= bold
	}
	return widthOf(s, size)
}

func (l look) dashed() string {
	if l.dash == "" {
		return `stroke-linejoin="round"`
	}
	return `stroke-linejoin="round" stroke-dasharray="` + l.dash + `"`
}

func (d *drawing) curve(x, y axis, l look, c curve) {
	var path strings.Builder
	for i, p := range c.points {
		if i > 0 {
			path.WriteByte('L')
		}
		path.WriteString(px(x.at(p.X)) + " " + px(y.at(p.Y)))
	}
	fmt.Fprintf(d, `<g><title>%s</title><path d="M%s" style="stroke:%s" stroke-width="%g" fill="none" %s/>`+"\n",
		escape(c.name), path.String(), d.paint(l.role), l.width(), l.dashed())
	// A few marks, not one for each point; those of the next contestant are elsewhere.
	every := max(1, len(c.points)/6)
	for i := (l.mark * every / 5) % every; i < len(c.points) && l.mark > 0; i += every {
		d.mark(l, x.at(c.points[i].X), y.at(c.points[i].Y))
	}
	d.WriteString("</g>\n")
}

func (d *drawing) mark(l look, x, y float64) {
	shape := []string{
		"m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", // a circle, a square, a triangle, a diamond
		"m-2.6-2.6h5.2v5.2h-5.2z",
		"m0-3.6l3.6 6.2h-7.2z",
		"m0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z",
	}[l.mark-1]
	fmt.Fprintf(d, `<path d="M%s %s%s" style="fill:%s;stroke:%s" stroke-width="0.8"/>`+"\n", px(x), px(y), shape, d.paint(l.role), d.paint("page"))
}

// labels writes the names where the lines end, moved apart where those are too close.
func (d *drawing) labels(p *palette, x float64, y axis, names float64, curves []curve) {
	last := func(c curve) float64 { return y.at(c.points[len(c.points)-1].Y) }
	sorted := slices.Clone(curves)
	slices.SortStableFunc(sorted, func(a, b curve) int { return cmp.Compare(last(a), last(b)) })
	places := make([]float64, len(sorted))
	for i, c := range sorted { // down from the top, then up from the bottom
		places[i] = max(last(c), y.To+4)
		if i > 0 {
			places[i] = max(places[i], places[i-1]+labelStep)
		}
	}
	for i, floor := len(places)-1, y.From-2; i >= 0; i-- {
		places[i] = min(places[i], floor)
		floor = places[i] - labelStep
	}
	for i, c := range sorted {
		l := p.looks[c.name]
		d.line(x, places[i], x+20, places[i], l.role, l.width(), l.dashed())
		if l.mark > 0 {
			d.mark(l, x+10, places[i])
		}
		d.text(x+25, places[i]+4, "start", "ink", `font-size="12" `+l.weight(), shortened(c.name, names, 12))
	}
}
