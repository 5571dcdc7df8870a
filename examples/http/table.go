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
		return rounded(d).String()
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%*s\t%*s\trequests\tunanswered\thandler runs\tp50\tp99\t\n", -scenario, "", -way, "")
	for _, r := range results {
		fmt.Fprintf(table, "%*s\t%*s\t%d\t%d\t%d\t%s\t%s\t\n",
			-scenario, r.scenario, -way, wayName(r.shared), r.requests, r.unanswered, r.runs, latency(r.p50), latency(r.p99))
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
