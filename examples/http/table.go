package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/stockade-cache/stockade/examples/internal/display"
)

// writeTable aligns text to the left and numbers to the right. A client that was not answered waited for its timeout.
func writeTable(w io.Writer, results []result, timeout time.Duration) error {
	scenario, way := 0, 0
	for _, r := range results {
		scenario, way = max(scenario, len(r.scenario)), max(way, len(wayName(r.shared)))
	}
	latency := func(d time.Duration) string {
		if d >= timeout {
			return "> " + timeout.String()
		}
		return display.Rounded(d).String()
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%*s\t%*s\trequests\tunanswered\thandler runs\tp50\tp99\t\n", -scenario, "", -way, "")
	for _, r := range results {
		fmt.Fprintf(table, "%*s\t%*s\t%d\t%d\t%d\t%s\t%s\t\n",
			-scenario, r.scenario, -way, wayName(r.shared), r.requests, r.unanswered, r.runs, latency(r.p50), latency(r.p99))
	}
	return table.Flush()
}
