package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"strings"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"join":       strings.Join,
		"paragraphs": paragraphs,
	}).Parse(pageHTML))
)

// page is all of the report in one HTML file that needs no other, and no network.
func (r *Report) page() ([]byte, error) {
	p := newPalette(r)
	view := pageView{
		Report:  r,
		Style:   template.CSS(":root{color-scheme:light dark;" + p.variables(false) + "}@media(prefers-color-scheme:dark){:root{" + p.variables(true) + "}}\n" + pageCSS),
		Machine: r.Machine.short(),
		Took:    r.Took.Round(time.Second),
		palette: p,
		ids:     slugs{},
	}
	for i := range r.Scenarios {
		view.add(&r.Scenarios[i])
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, view)
	return b.Bytes(), err
}

// pageView is what the page shows, in its order.
type pageView struct {
	*Report
	Style   template.CSS
	Machine string
	Took    time.Duration
	Rounds  int
	Errors  int // contestants with an error, over all tables
	Tiles   []tile
	Parts   []part
	palette *palette
	ids     slugs
}

// part is a scenario.
type part struct {
	*Scenario
	ID    string
	Cases []caseView
}

type caseView struct {
	table
	Pictures []template.HTML
}

func (v *pageView) add(s *Scenario) {
	part := part{Scenario: s, ID: v.ids.unique("s-" + s.Name)}
	pictures := s.pictures(v.palette, slugs{})
	for _, t := range s.tables() {
		shown := caseView{table: t}
		for _, c := range pictures {
			if c.Case == t.Case {
				// What is drawn is ours; the texts in it are escaped where they are drawn.
				shown.Pictures = append(shown.Pictures, template.HTML(c.Draw(adaptive, true)))
			}
		}
		for _, r := range t.Rows {
			if len(r.Errors) > 0 {
				v.Errors++
			}
		}
		part.Cases = append(part.Cases, shown)
	}
	v.Rounds = max(v.Rounds, len(rounds(s.Rows)))
	if t, ok := newTile(part); ok {
		v.Tiles = append(v.Tiles, t)
	}
	v.Parts = append(v.Parts, part)
}

func rounds(rows []Measurement) map[int]bool {
	seen := map[int]bool{}
	for _, m := range rows {
		seen[m.Round] = true
	}
	return seen
}

// Colour is the swatch of a contestant.
func (v pageView) Colour(name string) template.CSS {
	l, ok := v.palette.looks[name]
	if !ok {
		return "transparent"
	}
	return template.CSS(adaptive(l.role))
}

// Columns is how many the tables of a scenario have.
func (pageView) Columns(p part) int { return 1 + len(p.Figures) }

// Ours reports whether a contestant is a way to use this library.
func (pageView) Ours(name string) bool { return isOurs(name) }

// Heading is "S1 A cold key".
func (s *Scenario) Heading() string { return s.heading() }

// Head is the head of the figure's column.
func (f Figure) Head() string { return f.head() }

func paragraphs(s string) []string {
	return filled(strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n\n")...)
}
