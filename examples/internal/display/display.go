// Package display shows people how long something takes.
package display

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Progress shows a line that changes while something runs: in place on a terminal, else one line a second.
type Progress struct {
	W        io.Writer
	Terminal bool // what W leads to
}

// Show begins, and returns the function that ends it with the last line.
func (p *Progress) Show(line func() string) (done func()) {
	interval, before, after := time.Second, "", "\n"
	if p.Terminal {
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
				fmt.Fprint(p.W, before, line(), after)
			case <-stop:
				fmt.Fprint(p.W, before, line(), "\n")
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// IsTerminal reports whether people look at what is written to a file.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Rounded keeps three digits or so.
func Rounded(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d >= 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond)
	}
	return d
}
