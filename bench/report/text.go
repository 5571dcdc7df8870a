package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Text prints the tables of the scenarios with these names, of all without any.
func (r *Report) Text(w io.Writer, scenarios ...string) error {
	var b strings.Builder
	clean := r.finite()
	for i := range clean.Scenarios {
		s := &clean.Scenarios[i]
		if len(scenarios) > 0 && !slices.Contains(scenarios, s.Name) {
			continue
		}
		tables := s.tables()
		if len(tables) == 0 {
			fmt.Fprintf(&b, "%s\nnothing was measured\n\n", oneLine(s.heading()))
		}
		for _, t := range tables {
			heading := s.heading()
			if t.Case != "" {
				heading += " | " + t.Case
			}
			fmt.Fprintln(&b, oneLine(heading))
			t.text(&b)
			fmt.Fprintf(&b, "%s\n\n", oneLine(r.footing(s.Noise)))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// heading is "S1 A cold key".
func (s *Scenario) heading() string {
	return strings.TrimSpace(s.Number + " " + cmp.Or(s.Title, s.Name))
}

// text aligns the medians of a column on the right and what is behind them on the left.
func (t table) text(w io.Writer) {
	name := 0
	for _, r := range t.Rows {
		name = max(name, utf8.RuneCountInString(oneLine(r.Contestant)))
	}
	ranges := make([]int, len(t.Figures))
	for _, r := range t.Rows {
		for i, c := range r.Cells {
			ranges[i] = max(ranges[i], utf8.RuneCountInString(c.tail()))
		}
	}
	var aligned strings.Builder
	out := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%-*s\t", name, "")
	for _, f := range t.Figures {
		fmt.Fprintf(out, "%s\t", oneLine(f.head()))
	}
	fmt.Fprintln(out)
	for _, r := range t.Rows {
		// tabwriter aligns all columns alike: the names are padded to be on the left.
		fmt.Fprintf(out, "%-*s\t", name, oneLine(r.Contestant))
		for i, c := range r.Cells {
			fmt.Fprintf(out, "%s%-*s\t", c.head(), ranges[i], c.tail())
		}
		if len(r.Errors) > 0 {
			fmt.Fprintf(out, "  %s", oneLine(strings.Join(r.Errors, "; ")))
		}
		fmt.Fprintln(out)
	}
	_ = out.Flush() // into memory
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// head and tail are the two parts of "*104 (103–108)". The star is that of the best.
func (c cell) head() string {
	switch {
	case !c.Known:
		return "–"
	case c.Best:
		return "*" + c.String()
	default:
		return c.String()
	}
}

func (c cell) tail() string {
	if between := c.Range(); between != "" {
		return " (" + between + ")"
	}
	return ""
}

// footing says in one line what has to be known of a table that was copied.
func (r *Report) footing(n Noise) string {
	m := r.Machine
	parts := []string{m.short(), strings.Join(filled(m.Go, named("Redis", m.Redis), m.Origin), ", ")}
	if noise := n.String(); noise != "" {
		parts = append(parts, "noise "+noise)
	}
	return strings.Join(filled(append(parts, r.Command)...), " | ")
}

// short is "AMD EPYC, 2 cores, 8 GB".
func (m Machine) short() string {
	cores := ""
	if m.Cores > 0 {
		cores = fmt.Sprintf("%d cores", m.Cores)
	}
	return strings.Join(filled(m.CPU, cores, m.Memory, m.OS), ", ")
}

// named is a version with the name of what it is of, unless it says that itself.
func named(name, version string) string {
	if version == "" || strings.Contains(strings.ToLower(version), strings.ToLower(name)) {
		return version
	}
	return name + " " + version
}

func filled(parts ...string) []string {
	return slices.DeleteFunc(parts, func(s string) bool { return s == "" })
}

// oneLine keeps line ends and tabs of a name or an error from breaking the table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
