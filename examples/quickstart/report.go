package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/stockade-cache/stockade/examples/internal/display"
)

// writeTable aligns text to the left and numbers to the right.
func writeTable(w io.Writer, results []result) error {
	scenario, way := 0, 0
	for _, r := range results {
		scenario, way = max(scenario, len(r.scenario)), max(way, len(r.way))
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%*s\t%*s\treads\tdatabase queries\tp50\tp99\tRedis commands\t\n", -scenario, "scenario", -way, "")
	for _, r := range results {
		fmt.Fprintf(table, "%*s\t%*s\t%d\t%d\t%v\t%v\t%d\t\n",
			-scenario, r.scenario, -way, r.way, r.reads, r.queries, display.Rounded(r.p50), display.Rounded(r.p99), r.commands)
	}
	return table.Flush()
}
