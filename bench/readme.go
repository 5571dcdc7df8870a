package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stockade-cache/stockade/bench/report"
)

// quotation is a part of a README that quotes a report. It is written by -readme, and a test sees that it is true.
type quotation struct {
	file    string // from the repository's root
	columns []report.Column
	charts  map[string]string // the text for those who cannot see them
}

// quotations are those of both languages. The charts stand in the order of chartOrder.
var quotations = []quotation{
	{
		file: "README.md",
		columns: []report.Column{
			{Scenario: "cold", Figure: "loads", Title: "1,000 callers, 1 cold key: loads"},
			{Scenario: "cold", Figure: "p99", Title: "their p99, load 100 ms"},
			{Scenario: "rolling", Figure: "needless", Title: "hot keys expire: loads ÷ needed"},
			{Scenario: "rolling", Figure: "p99", Title: "their p99, load 20 ms"},
			{Scenario: "killed", Figure: "last", Title: "holder killed: all answered after", Failed: "not in 15 s"},
			{Scenario: "invalidation", Figure: "duringOther", Title: "stale answers of 200 invalidations during a load"},
			{Scenario: "outage", Figure: "frozenAnswered", Title: "Redis frozen: answered"},
			{Scenario: "metastable", Figure: "recovery", Title: "cache lost: recovered after", Failed: "not in 20 s"},
		},
		charts: map[string]string{
			"cold-loads-4-250-callers-load-100ms": "Database queries for one cold key, by library",
			"metastable-goodput":                  "Reads answered before and after the cache is lost, by library",
		},
	},
	{
		file: "README.zh-CN.md",
		columns: []report.Column{
			{Scenario: "cold", Figure: "loads", Title: "1000 个调用者、1 个冷键：加载次数"},
			{Scenario: "cold", Figure: "p99", Title: "其 p99（加载 100 ms）"},
			{Scenario: "rolling", Figure: "needless", Title: "热键过期：加载次数 ÷ 必需次数"},
			{Scenario: "rolling", Figure: "p99", Title: "其 p99（加载 20 ms）"},
			{Scenario: "killed", Figure: "last", Title: "持有者被杀：全部得到回答", Failed: "15 s 内未能"},
			{Scenario: "invalidation", Figure: "duringOther", Title: "加载中失效 200 次：陈旧回答"},
			{Scenario: "outage", Figure: "frozenAnswered", Title: "Redis 冻结：得到回答"},
			{Scenario: "metastable", Figure: "recovery", Title: "缓存全失：恢复用时", Failed: "20 s 内未能"},
		},
		charts: map[string]string{
			"cold-loads-4-250-callers-load-100ms": "一个冷键的数据库查询次数，按库",
			"metastable-goodput":                  "缓存全失前后得到回答的读取，按库",
		},
	},
}

var chartOrder = []string{"cold-loads-4-250-callers-load-100ms", "metastable-goodput"}

const (
	quotationBegin = "<!-- what follows is from %s/report.json: go run . -readme in bench writes it -->\n"
	quotationEnd   = "<!-- so far from the report -->\n"
)

// quote returns what a README says of the report in that folder of bench.
func (q quotation) quote(folder string) (string, error) {
	r, err := report.Read(filepath.Join(filepath.FromSlash(folder), "report.json"))
	if err != nil {
		return "", err
	}
	table, err := r.Markdown(q.columns)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, quotationBegin, "bench/"+folder)
	b.WriteString("\n" + table + "\n")
	for _, chart := range chartOrder {
		if _, err := os.Stat(filepath.Join(filepath.FromSlash(folder), "charts", chart+"-light.svg")); err != nil {
			return "", err
		}
		b.WriteString(report.Picture("bench/"+folder, chart, q.charts[chart]) + "\n\n")
	}
	b.WriteString(quotationEnd)
	return b.String(), nil
}

// split finds the quotation in a README: what stands before it, the folder of its report, itself, and what stands behind it.
func split(text string) (before, folder, quoted, after string, err error) {
	mark, tail, _ := strings.Cut(quotationBegin, "%s")
	i := strings.Index(text, mark)
	j := strings.Index(text, quotationEnd)
	if i < 0 || j < i {
		return "", "", "", "", fmt.Errorf("it has no quotation of a report between %q and %q", quotationBegin, quotationEnd)
	}
	j += len(quotationEnd)
	folder, _, ok := strings.Cut(text[i+len(mark):j], tail)
	folder, inBench := strings.CutPrefix(folder, "bench/")
	if !ok || !inBench {
		return "", "", "", "", fmt.Errorf("it does not say which report it quotes")
	}
	return text[:i], folder, text[i:j], text[j:], nil
}

// writeReadmes quotes the report in a folder of bench in all READMEs.
func writeReadmes(folder string) error {
	for _, q := range quotations {
		file := filepath.Join("..", q.file)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		before, _, _, after, err := split(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", q.file, err)
		}
		quoted, err := q.quote(filepath.ToSlash(filepath.Clean(folder)))
		if err != nil {
			return fmt.Errorf("%s: %w", q.file, err)
		}
		if err := os.WriteFile(file, []byte(before+quoted+after), 0o644); err != nil {
			return err
		}
	}
	return nil
}
