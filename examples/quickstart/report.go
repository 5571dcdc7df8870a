package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// progress shows a line that changes while something runs: in place on a terminal, else one line a second.
type progress struct {
	w        io.Writer
	terminal bool
}

// show begins, and returns the function that ends it with the last line.
func (p *progress) show(line func() string) (done func()) {
	interval, before, after := time.Second, "", "\n"
	if p.terminal {
		interval, before, after = 100*time.Millisecond, "\r\x1b[K", ""
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprint(p.w, before, line(), after)
			case <-stop:
				fmt.Fprint(p.w, before, line(), "\n")
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

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
			-scenario, r.scenario, -way, r.way, r.reads, r.queries, rounded(r.p50), rounded(r.p99), r.commands)
	}
	return table.Flush()
}

// rounded keeps three digits or so.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(time.Microsecond)
	}
}
