package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a README says of the benchmark is what was measured.
func TestTheReadmesQuoteTheReport(t *testing.T) {
	for _, q := range quotations {
		text, err := os.ReadFile(filepath.Join("..", q.file))
		if err != nil {
			t.Fatal(err)
		}
		_, folder, got, _, err := split(string(text))
		if err != nil {
			t.Errorf("%s: %v", q.file, err)
			continue
		}
		want, err := q.quote(folder)
		if err != nil {
			t.Errorf("%s: %v", q.file, err)
			continue
		}
		if got != want {
			t.Errorf("%s does not quote bench/%s: run go run . -readme %s in bench\n%s", q.file, folder, folder, difference(got, want))
		}
	}
}

// difference returns the lines of the one that are not in the other.
func difference(got, want string) string {
	var b strings.Builder
	for line := range strings.Lines(got) {
		if !strings.Contains(want, line) {
			b.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			b.WriteString("+ " + line)
		}
	}
	return b.String()
}
