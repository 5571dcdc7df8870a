package conformance

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const reportFile = "results.md"

var update = flag.Bool("update", false, "write "+reportFile)

// compareReport compares what was measured with what is committed, or writes it.
func compareReport(t *testing.T, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(reportFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	committed, err := os.ReadFile(reportFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if string(committed) == got {
		return
	}
	gotLine, wantLine := firstDifference(got, string(committed))
	t.Errorf("%s is out of date; it is written by: go test ./middleware/conformance -update\nmeasured:  %s\ncommitted: %s",
		reportFile, gotLine, wantLine)
}

// firstDifference returns the first lines in which two texts differ.
func firstDifference(a, b string) (string, string) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i], bs[i]
		}
	}
	n := min(len(as), len(bs))
	return strings.Join(as[n:], " "), strings.Join(bs[n:], " ")
}

// An anchor is what another cache reaches on the newest suite.
type anchor struct {
	name              string
	required, optimal int
}

// anchors are of the suite's newest edition, which the npm package does not have.
var anchors = []anchor{
	{"nothing: the proxy alone", 22, 0},
	{"go-chi/stampede", 0, 12},
	{"victorspringer/http-cache", 13, 4},
	{"gregjones/httpcache", 95, 47},
	{"nginx 1.22", 100, 58},
	{"parapet", 110, 41},
	{"Varnish 7.1", 119, 45},
	{"bartventer/httpcache", 122, 66},
	{"Souin", 123, 46},
	{"kyache", 129, 67},
	{"httpd, as published", 131, 68},
	{"ATS, as published", 132, 70},
}

// tally counts cases of one kind.
type tally struct{ passed, total, untested int }

func (n tally) String() string { return fmt.Sprintf("%d/%d", n.passed, n.total) }

func (e edition) count(kind string, r results, suites ...suite) tally {
	var n tally
	for _, s := range suites {
		for _, c := range s.Cases {
			if c.Kind != kind {
				continue
			}
			n.total++
			if e.failure(c.ID, r) == "" {
				n.passed++
			}
			if _, ok := r[c.ID]; !ok {
				n.untested++
			}
		}
	}
	return n
}

// report writes what was measured as Markdown.
func report(ed edition, list exceptions, measured []measurement, nothing measurement) string {
	var b strings.Builder
	b.WriteString(`# Conformance to RFC 9111

Written by ` + "`go test ./middleware/conformance -update`" + `; without the flag the test fails when it measures anything else.

The cases are those of [http-tests/cache-tests](https://github.com/http-tests/cache-tests) in the edition of the npm package
http-cache-tests 0.4.5, without the few that are for browsers. What is measured is the middleware around Go's
httputil.ReverseProxy, on a real Redis. A case counts as passed only if every case that it depends on passes too. A *required*
case is what RFC 9111 demands, an *optimal* one is a response that could have been reused; the suite also has cases that only ask
what a cache does, and these are not judged.

There are two profiles. *default* serves stale responses for a minute when the origin fails, and caches what Authorization and
RFC 9111 3.5 allow. *cookies* also stores responses with Set-Cookie, and answers requests that have a Cookie from the cache.

`)
	writeSuites(&b, ed, measured)
	writeSameEdition(&b, ed, measured, nothing)
	writeAnchors(&b)
	writeExceptions(&b, ed, list)
	return b.String()
}

func writeSuites(b *strings.Builder, ed edition, measured []measurement) {
	b.WriteString("| suite |")
	for _, m := range measured {
		fmt.Fprintf(b, " %s: required | optimal |", m.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|---|", len(measured)) + "\n")
	row := func(name string, suites ...suite) {
		fmt.Fprintf(b, "| %s |", name)
		for _, m := range measured {
			fmt.Fprintf(b, " %v | %v |", ed.count(required, m.Results, suites...), ed.count(optimal, m.Results, suites...))
		}
		b.WriteString("\n")
	}
	for _, s := range ed.Suites {
		row(s.Name, s)
	}
	row("**all**", ed.Suites...)
}

func writeSameEdition(b *strings.Builder, ed edition, measured []measurement, nothing measurement) {
	b.WriteString(`
## Beside other caches: the same edition

The proxy alone was measured here. The results of the caches below it are those that the suite's authors publish in the same
package, counted by the same rule, and of the versions that are named. A case that one has no result of, which is then older than
the case, counts as not passed: the last column says how many of the required and of the optimal ones.
Their client was older than ours: it does not lower-case Content-Encoding, and so two required cases could pass that cannot here.

| cache | required | optimal | without a result |
|---|---|---|---|
`)
	row := func(name string, r results) {
		req, opt := ed.count(required, r, ed.Suites...), ed.count(optimal, r, ed.Suites...)
		untested := ""
		if req.untested+opt.untested > 0 {
			untested = fmt.Sprintf("%d and %d", req.untested, opt.untested)
		}
		fmt.Fprintf(b, "| %s | %v | %v | %s |\n", name, req, opt, untested)
	}
	for _, m := range measured {
		row("**stockade, "+m.Name+"**", m.Results)
	}
	row(nothing.Name, nothing.Results)
	for _, m := range ed.Published {
		row(m.Name+" "+m.Version, m.Results)
	}
}

func writeAnchors(b *strings.Builder) {
	b.WriteString(`
## Other caches: another edition

**These figures are of another edition than ours, and cannot be set against the tables above**: of the newest suite, which has 365
cases, 160 of them required and 105 optimal. They show how far caches come.

| cache | required, of 160 | optimal, of 105 |
|---|---|---|
`)
	for _, a := range anchors {
		fmt.Fprintf(b, "| %s | %d | %d |\n", a.name, a.required, a.optimal)
	}
}

// writeExceptions gives each case a line of its own, so that a change of one is a small difference.
func writeExceptions(b *strings.Builder, ed edition, list exceptions) {
	b.WriteString("\n## What does not pass, and why\n")
	for _, kind := range []string{required, optimal} {
		fmt.Fprintf(b, "\nOf the %s cases:\n\n", kind)
		found := false
		for _, e := range list {
			ids := slices.DeleteFunc(slices.Clone(e.Cases), func(id string) bool {
				c, _ := ed.find(id)
				return c.Kind != kind
			})
			if len(ids) == 0 {
				continue
			}
			found = true
			where := ""
			if len(e.Profiles) > 0 {
				where = " (only " + strings.Join(e.Profiles, ", ") + ")"
			}
			fmt.Fprintf(b, "- %s%s\n", e.Reason, where)
			for _, id := range ids {
				fmt.Fprintf(b, "  - `%s`\n", id)
			}
		}
		if !found {
			b.WriteString("- none\n")
		}
	}
}
