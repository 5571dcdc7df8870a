package report

import (
	"fmt"
	"strings"
)

// A shade is a colour on a light and on a dark page.
type shade struct{ light, dark string }

// What is not a contestant: the page, its text, the grid, errors.
var roles = map[string]shade{
	"page":  {"#ffffff", "#0d1117"},
	"ink":   {"#1b1f24", "#e6edf3"},
	"muted": {"#57606a", "#9aa4af"},
	"grid":  {"#d8dee4", "#2b323b"},
	"error": {"#b3261e", "#ff8a80"},
}

// Ours are warm and strong, the others cool and muted: the two groups stay apart for colour-blind eyes too. Within a group
// lightness differs, and lines have marks and dashes besides.
var (
	ours = []shade{
		{"#d55e00", "#ff7f2a"}, // of "stockade" itself
		{"#e69f00", "#f5bd3d"},
		{"#b0124f", "#ff7d9c"},
		{"#7a4a00", "#c98f45"},
	}
	others = []shade{
		{"#6b89ab", "#7f9cbd"},
		{"#74a392", "#86b5a4"},
		{"#8d82ae", "#a297c4"},
		{"#8b9b6c", "#9caf7a"},
		{"#6fa3b5", "#82b7c9"},
		{"#a58a9c", "#b89aae"},
		{"#70768f", "#858ca8"},
		{"#58807c", "#6b9a95"},
	}
	nothing = shade{"#8b949e", "#8b949e"} // of "none"
)

// dashes tell lines apart whose colours are alike.
var dashes = []string{"", "6 3", "2 3", "8 3 2 3"}

// look is how a contestant is drawn in every chart.
type look struct {
	shade
	role string // its name in the palette
	ours bool
	dash string
	mark int // a shape of the marks on its line
}

// palette gives every contestant of a report its look.
type palette struct {
	looks map[string]look
	order []string
}

// newPalette goes by the order of the contestants, so a look stays the same in all charts. That of "stockade" never changes.
func newPalette(r *Report) *palette {
	p := &palette{looks: map[string]look{}}
	for _, peer := range r.Peers {
		p.add(peer.Name)
	}
	for _, s := range r.Scenarios {
		for _, m := range s.Rows {
			p.add(m.Contestant)
		}
	}
	variants, rivals := 0, 0
	for i, name := range p.order {
		l := look{shade: nothing, role: fmt.Sprintf("c%d", i)}
		switch {
		case name == "stockade":
			l.shade, l.ours = ours[0], true
		case isOurs(name):
			l.shade, l.ours, l.dash = ours[1+variants%3], true, dashes[1+variants%3]
			variants++
		case name == "theory":
			l.shade, l.dash = roles["ink"], dashes[1]
		case name != "none":
			l.shade, l.dash, l.mark = others[rivals%8], dashes[rivals/8%4], 1+rivals%4
			rivals++
		}
		p.looks[name] = l
	}
	return p
}

func (p *palette) add(name string) {
	if _, known := p.looks[name]; !known {
		p.looks[name] = look{}
		p.order = append(p.order, name)
	}
}

// isOurs reports whether a contestant is a way to use this library.
func isOurs(name string) bool { return name == "stockade" || strings.HasPrefix(name, "stockade ") }

// A paint turns a role into a colour.
type paint func(role string) string

// fixed paints a file of its own, which is for a light or for a dark page.
func (p *palette) fixed(dark bool) paint {
	colours := map[string]string{}
	p.each(func(role string, s shade) {
		colours[role] = s.light
		if dark {
			colours[role] = s.dark
		}
	})
	return func(role string) string { return colours[role] }
}

// adaptive paints a drawing inside of the page: the page's style says what the variables are.
func adaptive(role string) string { return "var(--" + role + ")" }

// variables are the declarations that [adaptive] refers to.
func (p *palette) variables(dark bool) string {
	var b strings.Builder
	colour := p.fixed(dark)
	p.each(func(role string, _ shade) { fmt.Fprintf(&b, "--%s:%s;", role, colour(role)) })
	return b.String()
}

func (p *palette) each(f func(role string, s shade)) {
	for _, role := range []string{"page", "ink", "muted", "grid", "error"} {
		f(role, roles[role])
	}
	for _, name := range p.order {
		f(p.looks[name].role, p.looks[name].shade)
	}
}
