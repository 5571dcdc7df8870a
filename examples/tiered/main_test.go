package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func TestRun(t *testing.T) {
	server := miniredis.RunT(t)
	var out strings.Builder
	s := size{local: 20 * batch, remote: 50, rounds: 20, outage: 1200 * time.Millisecond}
	f, err := run(t.Context(), t.TempDir(), server, s, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if f.local.reads != s.local || f.local.local != uint64(s.local) || f.local.trips != 0 {
		t.Errorf("the local tier: %+v, want %d reads, all of them local, and no round trip", f.local, s.local)
	}
	if f.remote.reads != s.remote || f.remote.local != 0 || f.remote.trips < uint64(s.remote) {
		t.Errorf("Redis: %+v, want %d reads, and a round trip for each", f.remote, s.remote)
	}
	if f.changes.reads != 10*s.rounds || f.changes.old != 0 || len(f.changes.served) != s.rounds {
		t.Errorf("changes: %+v, want %d rounds, 10 reads of A in each, and no old value", f.changes, s.rounds)
	}
	if f.outage.reads == 0 || f.outage.queries != 0 || f.outage.failed == 0 {
		t.Errorf("without Redis: %+v, want reads, no query, and failures of Redis", f.outage)
	}
	for _, row := range []string{
		`local tier +2000 +0 `,
		`Redis +50 +\d+ `,
		`20 times: 0 of 200 later reads of A are old`,
		`B serves the old value for `,
		`s +\d+ +0 +[1-9]\d* `,
	} {
		if !regexp.MustCompile(row).MatchString(out.String()) {
			t.Errorf("no row like %q:\n%s", row, &out)
		}
	}
}

func TestCheck(t *testing.T) {
	kept := figures{local: hits{reads: 5, local: 5}, outage: outage{failed: 1}}
	if err := kept.check(); err != nil {
		t.Errorf("check = %v, want nil", err)
	}
	for name, spoil := range map[string]func(*figures){
		"a round trip":        func(f *figures) { f.local.trips = 1 },
		"not local":           func(f *figures) { f.local.local = 4 },
		"an old value":        func(f *figures) { f.changes.old = 1 },
		"a query":             func(f *figures) { f.outage.queries = 1 },
		"Redis was not asked": func(f *figures) { f.outage.failed = 0 },
	} {
		broken := kept
		spoil(&broken)
		if broken.check() == nil {
			t.Errorf("%s: check = nil, want an error", name)
		}
	}
}
