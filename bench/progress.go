package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/stockade-cache/stockade/bench/herd"
)

// progress shows how far the run is: as a bar on a terminal, as a line for each measurement elsewhere.
type progress struct {
	out     io.Writer
	bars    *mpb.Progress // nil: not on a terminal
	bar     *mpb.Bar
	doing   atomic.Value // string: what the bar says, which draws itself now and then
	started time.Time
}

func newProgress(out io.Writer, all int) *progress {
	p := &progress{out: out, started: time.Now()}
	p.doing.Store("")
	if file, ok := out.(*os.File); !ok || !isatty.IsTerminal(file.Fd()) {
		return p
	}
	p.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(40))
	p.bar = p.bars.AddBar(int64(all),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d "), decor.Elapsed(decor.ET_STYLE_MMSS)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return p.doing.Load().(string) })),
	)
	return p
}

func (p *progress) tell(e herd.Event) {
	what := fmt.Sprintf("%s, %s, round %d: %s", e.Scenario, e.Case, e.Round, e.Contestant)
	switch {
	case p.bars != nil && e.Row == nil:
		p.doing.Store(what)
	case p.bars != nil:
		p.bar.SetCurrent(int64(e.Done))
	case e.Row != nil && e.Row.Error != "":
		fmt.Fprintf(p.out, "[%d/%d %v] %s: %s\n", e.Done, e.All, time.Since(p.started).Round(time.Second), what, e.Row.Error)
	case e.Row != nil:
		fmt.Fprintf(p.out, "[%d/%d %v] %s\n", e.Done, e.All, time.Since(p.started).Round(time.Second), what)
	}
}

// end leaves the bar as it is: it is full unless the run was interrupted.
func (p *progress) end() {
	if p.bars != nil {
		p.bar.Abort(false)
		p.bars.Wait()
	}
}
