package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/herd"
	"github.com/stockade-cache/stockade/bench/report"
)

// TestMain lets the test binary be a process of a fleet, too.
func TestMain(m *testing.M) {
	if herd.IsProcess() {
		if err := herd.Serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-scenarios", "S1,rolling", "-contestants", "none, stockade", "-processes", "2", "-callers", "3", "-load", "20ms", "-redis", "redis://localhost:6379"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.scenarios) != 2 || o.scenarios[0].Name != "cold" || o.scenarios[1].Number != "S2" {
		t.Errorf("scenarios: %v", o.scenarios)
	}
	if strings.Join(o.contestants, "|") != "none|stockade" || o.redis != "localhost:6379" || o.profile != (herd.Profile{Processes: 2, Callers: 3, Load: 20 * time.Millisecond}) {
		t.Errorf("%+v", o)
	}
	if o, err := parse(nil, io.Discard); err != nil || len(o.scenarios) != len(herd.Scenarios()) || o.profile.Full || o.redis != "" {
		t.Errorf("without flags: %+v, %v", o, err)
	}
	if o, err := parse([]string{"-profile", "full"}, io.Discard); err != nil || !o.profile.Full {
		t.Errorf("full: %+v, %v", o, err)
	}
}

// What is in a report may be shown to anybody.
func TestTheCommandLineHidesTheDSN(t *testing.T) {
	for _, args := range [][]string{{"-dsn", "secret"}, {"--dsn", "secret"}, {"-dsn=secret"}, {"--dsn=postgres://u:secret@h/d?a=b"}} {
		o, err := parse(append([]string{"-load", "20ms"}, args...), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(o.command, "secret") || !strings.HasPrefix(o.command, "go run . -load 20ms -") {
			t.Errorf("%v: the command line is %q", args, o.command)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-scenarios nothing":             `no scenario is called "nothing"`,
		"-contestants stockade,memcache": `no contestant is called "memcache"`,
		"-processes 65":                  "-processes is 65",
		"-callers -1":                    "-callers is -1",
		"-rounds 101":                    "-rounds is 101",
		"-load 11s":                      "-load is 11s",
		"-load 1us":                      "-load is 1µs",
		"-duration 2m":                   "-duration is 2m0s",
		"-profile long":                  `-profile is "long"`,
		"-redis localhost":               `-redis is "localhost"`,
		"-redis redis://:secret@h:1":     "password",
		"-redis redis://h:1/3":           "database number",
		"more":                           `unexpected argument "more"`,
		"-nonsense":                      "not defined",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", args, err, want)
		}
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
	for _, s := range herd.Scenarios() {
		if !strings.Contains(help.String(), s.Name) {
			t.Errorf("-help does not name the scenario %s", s.Name)
		}
	}
}

// A newcomer's run: a stampede without and with stockade, its tables, and its report.
func TestRun(t *testing.T) {
	o, err := parse([]string{"-scenarios", "cold", "-contestants", "none,stockade", "-processes", "2", "-callers", "10", "-load", "20ms", "-rounds", "2", "-out", filepath.Join(t.TempDir(), "report")}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"[4/4 ", "S1 A cold key", "2 × 10 callers, load 20ms", "index.html"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the output:\n%s", want, &out)
		}
	}
	r, err := report.Read(filepath.Join(o.out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Scenarios) != 1 || len(r.Scenarios[0].Rows) != 4 || len(r.Peers) != 2 {
		t.Fatalf("%d scenarios, contestants %v", len(r.Scenarios), r.Peers)
	}
	for _, row := range r.Scenarios[0].Rows {
		want := map[string]float64{"none": 20, "stockade": 1}[row.Contestant]
		if got := row.Figures["loads"]; got != want || row.Error != "" {
			t.Errorf("%s, round %d: %v loads, want %v; error %q", row.Contestant, row.Round, got, want, row.Error)
		}
	}
	if m := r.Machine; m.Cores == 0 || m.Go == "" || m.Redis == "" || !strings.HasPrefix(m.Origin, "SQLite") {
		t.Errorf("machine: %+v", m)
	}
}

// What was measured before Ctrl-C is reported.
func TestAnInterruptedRunIsReported(t *testing.T) {
	o, err := parse([]string{"-scenarios", "cold", "-contestants", "stockade", "-callers", "2", "-processes", "1", "-load", "20ms", "-rounds", "100", "-out", filepath.Join(t.TempDir(), "report")}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	out := &watched{text: "[2/100 ", found: interrupt}
	if err := run(ctx, o, out); !errors.Is(err, context.Canceled) {
		t.Fatalf("returned %v", err)
	}
	r, err := report.Read(filepath.Join(o.out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if rows := len(r.Scenarios[0].Rows); rows < 2 || rows > 20 {
		t.Errorf("%d measurements are reported", rows)
	}
}

// watched is an output in which a text is looked for.
type watched struct {
	bytes.Buffer
	text  string
	found func()
}

func (w *watched) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) {
		w.found()
	}
	return w.Buffer.Write(b)
}
