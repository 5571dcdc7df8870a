package prom

import (
	"regexp"
	"strings"
	"testing"
)

// docs/operations.md explains every metric, and no other.
func TestOperationsExplainEveryMetric(t *testing.T) {
	text := readFile(t, "../../docs/operations.md")
	exported := exportedBy(t, fed(t))
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(stockade_[a-z_]+)").FindAllStringSubmatch(text, -1) {
		if _, ok := exported[m[1]]; !ok {
			t.Errorf("it names %s, which is not exported", m[1])
		}
	}
	// Explained is what stands in the first column of a table.
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			for _, m := range regexp.MustCompile("`(stockade_[a-z_]+)[`{]").FindAllStringSubmatch(cells[1], -1) {
				named[m[1]] = true
			}
		}
	}
	for _, f := range families(t, fed(t)) {
		if !named[f] {
			t.Errorf("it does not explain %s", f)
		}
	}
	// S marks what comes from Stats.
	for _, m := range statsMetrics {
		line := regexp.MustCompile("(?m)^\\| [^|]*`" + m.name + "[`{][^|]*\\|").FindString(text)
		if !strings.Contains(line, " S") {
			t.Errorf("%s comes from Stats, and no S says so", m.name)
		}
	}
}

// The picture names metrics that there are.
func TestThePictureNamesMetrics(t *testing.T) {
	picture := readFile(t, "../../docs/read-path.svg")
	exported := exportedBy(t, fed(t))
	found := 0
	for _, text := range regexp.MustCompile(`monospace"[^>]*>([^<]*)<`).FindAllStringSubmatch(picture, -1) {
		for name := range strings.FieldsSeq(text[1]) {
			if name, _, _ = strings.Cut(name, "{"); name == "" {
				continue // only a value of a label
			}
			found++
			if _, ok := exported["stockade_"+name]; !ok {
				t.Errorf("it names %s, which is not exported", name)
			}
		}
	}
	if found < 15 {
		t.Errorf("found %d names", found)
	}
}

// Links within the document lead somewhere.
func TestLinksOfOperations(t *testing.T) {
	text := readFile(t, "../../docs/operations.md")
	sections := map[string]bool{}
	for _, a := range anchors(text) {
		if sections[a] {
			t.Errorf("two sections are called %q", a)
		}
		sections[a] = true
	}
	links := regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(text, -1)
	if len(links) < 5 {
		t.Fatalf("found %d links", len(links))
	}
	for _, m := range links {
		if !sections[m[1]] {
			t.Errorf("no section is called %q", m[1])
		}
	}
}

// anchors are those that GitHub gives to the sections of a document.
func anchors(markdown string) (list []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(markdown, -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(name, " ", "-"))
	}
	return list
}
