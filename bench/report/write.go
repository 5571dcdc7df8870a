package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Write makes the directory and puts into it:
//
//   - report.json: all that was measured, for [Read]
//   - measurements.csv: a line for each figure of each measurement
//   - charts/NAME-light.svg and charts/NAME-dark.svg; those of an earlier report are removed
//   - index.html: one page with everything, which needs none of the other files
//
// What is no number (NaN, ±Inf) is left out and said in the error of its measurement.
func (r *Report) Write(dir string) error {
	clean := r.finite()
	charts := filepath.Join(dir, "charts")
	if err := os.MkdirAll(charts, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(clean, "", "\t")
	if err != nil {
		return err
	}
	page, err := clean.page()
	if err != nil {
		return err
	}
	if err := removeCharts(charts); err != nil {
		return err
	}
	files := map[string][]byte{
		"report.json":      append(text, '\n'),
		"measurements.csv": clean.csv(),
		"index.html":       page,
	}
	p, taken := newPalette(clean), slugs{}
	for i := range clean.Scenarios {
		for _, c := range clean.Scenarios[i].pictures(p, taken) {
			files["charts/"+c.Name+"-light.svg"] = []byte(c.Draw(p.fixed(false), false))
			files["charts/"+c.Name+"-dark.svg"] = []byte(c.Draw(p.fixed(true), false))
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCharts keeps a chart that does not exist any more from being taken for one of this report.
func removeCharts(dir string) error {
	for _, pattern := range []string{"*-light.svg", "*-dark.svg"} {
		old, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range old {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read reads a report.json that [Report.Write] has written.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}
