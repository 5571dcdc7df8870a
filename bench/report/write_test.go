package report

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestReportIsReadAsItWasWritten(t *testing.T) {
	want := fixture()
	got, err := Read(filepath.Join(written(t, want), "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("what is read is not what was written")
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v of a file that does not exist", err)
	}
}

func TestMeasurementsCSV(t *testing.T) {
	r := fixture()
	r.Scenarios[0].Rows[0].Error = "a \"quote\", a comma\nand a line end"
	want := 1
	for _, s := range r.Scenarios {
		for _, m := range s.Rows {
			want += max(1, len(m.Figures))
		}
	}
	lines, err := csv.NewReader(strings.NewReader(content(t, written(t, r), "measurements.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != want {
		t.Errorf("got %d lines, want %d", len(lines), want)
	}
	first := strings.Join(lines[1], "|")
	if first != "cold|4 × 250 callers, 100 ms|none|1|commands||2000|"+r.Scenarios[0].Rows[0].Error {
		t.Errorf("the first line is %s", first)
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	dir := filepath.Join(written(t, hostile(fixture())), "charts")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	light := 0
	for _, f := range files {
		text := content(t, dir, f.Name())
		wellFormed(t, f.Name(), text, true)
		if strings.Contains(text, "var(") || strings.Contains(text, "NaN") || strings.Contains(text, `style="fill:"`) || strings.Contains(text, `style="stroke:"`) {
			t.Errorf("%s has a colour or a place that is not fixed", f.Name())
		}
		if name, ok := strings.CutSuffix(f.Name(), "-light.svg"); ok {
			light++
			if content(t, dir, name+"-dark.svg") == text {
				t.Errorf("%s is the same in light and dark", name)
			}
		}
	}
	if light != 15 || len(files) != 2*light {
		t.Errorf("got %d files, %d of them light, want 15 of each", len(files), light)
	}
}

func TestChartsOfAnEarlierReportAreRemoved(t *testing.T) {
	dir := written(t, fixture())
	if err := os.WriteFile(filepath.Join(dir, "charts", "mine.svg"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := fixture()
	r.Scenarios = r.Scenarios[2:3]
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "charts", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 5 { // two charts, dark, and what was not ours
		t.Errorf("got %v", files)
	}
}

func TestWhatIsNoNumberIsAnError(t *testing.T) {
	r := fixture()
	m := &r.Scenarios[1].Rows[0]
	m.Error = "was slow"
	m.Figures["p99"] = math.NaN()
	m.Figures["ratio"] = math.Inf(1)
	m.Series["latency"][3].Y = math.Inf(-1)
	got, err := Read(filepath.Join(written(t, r), "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	read := got.Scenarios[1].Rows[0]
	if want := "was slow; p99 is NaN; ratio is +Inf; 1 of the points of latency are no numbers"; read.Error != want {
		t.Errorf("the error is %q, want %q", read.Error, want)
	}
	if len(read.Figures) != 0 || len(read.Series["latency"]) != 50 {
		t.Errorf("%d figures and %d points are left", len(read.Figures), len(read.Series["latency"]))
	}
	if len(m.Figures) != 2 || m.Error != "was slow" {
		t.Error("the caller's report was changed")
	}
	if text := printed(t, r, "rolling"); !strings.Contains(text, "p99 is NaN") {
		t.Errorf("the terminal does not say it:\n%s", text)
	}
}

func TestReportsWithLittleInThem(t *testing.T) {
	bars := []Chart{{Name: "c", Kind: Bars, Of: "f", YLog: true}, {Name: "c", Kind: Bars, Of: "f"}, {Name: "l", Kind: Lines, Of: "s", XLog: true, YLog: true}, {Name: "l", Kind: Lines, Of: "s"}}
	figures := []Figure{{Name: "f", Title: "f", Best: Lower}}
	for name, rows := range map[string][]Measurement{
		"no rows":        nil,
		"only errors":    {{Contestant: "a", Error: "broken"}, {Contestant: "b", Error: "broken"}},
		"nothing at all": {{}},
		"zeros":          {{Contestant: "a", Figures: map[string]float64{"f": 0}, Series: map[string][]Point{"s": {{0, 0}}}}},
		"less than zero": {{Contestant: "a", Figures: map[string]float64{"f": -3}, Series: map[string][]Point{"s": {{-1, -1}, {-2, -5}}}}},
		"one point":      {{Contestant: "a", Figures: map[string]float64{"f": 3}, Series: map[string][]Point{"s": {{5, 5}}}}},
		"very large":     {{Contestant: "a", Figures: map[string]float64{"f": math.MaxFloat64}, Series: map[string][]Point{"s": {{1e18, 1e300}, {1e18 + 1000, 1}}}}},
		"very small":     {{Contestant: "a", Figures: map[string]float64{"f": 5e-324}, Series: map[string][]Point{"s": {{1e-300, 1e-300}, {1, 1e-12}}}}},
	} {
		r := &Report{Scenarios: []Scenario{{Name: "s", Figures: figures, Charts: bars, Rows: rows}}}
		dir := written(t, r)
		page := content(t, dir, "index.html")
		wellFormed(t, name, page, false)
		if strings.Contains(page, "NaN") {
			t.Errorf("%s: something has no place", name)
		}
		if name == "no rows" && !strings.Contains(page, "Nothing was measured.") {
			t.Error("a scenario without rows does not say so")
		}
		printed(t, r)
	}
}

func written(t *testing.T, r *Report) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wellFormed reads a document to its end.
func wellFormed(t *testing.T, name, text string, strict bool) {
	t.Helper()
	tokens(t, name, text, strict, func(xml.Token) {})
}

// tokens takes a document apart. HTML, which is not strict, has names and empty elements that XML does not know.
func tokens(t *testing.T, name, text string, strict bool, visit func(xml.Token)) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	if !strict {
		d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	}
	for {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		visit(token)
	}
}
