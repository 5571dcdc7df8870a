package report

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	r := fixture()
	s := &r.Scenarios[0]
	s.Figures = s.Figures[:3]
	var rows []Measurement
	for _, m := range s.Rows {
		switch m.Contestant {
		case "none", "redsync", "redislock", "rueidis", "rueidis tracked", "stockade":
			if m.Case == "4 × 250 callers, 100 ms" {
				rows = append(rows, m)
			}
		}
	}
	s.Rows = rows
	want := strings.TrimPrefix(`
S1 A cold key | 4 × 250 callers, 100 ms
                         loads         p99, ms                commands
  none             1,000        *103 (101–104)   2,000
  redsync              3 (2–3)   531 (493–538)  43,489 (42,234–44,955)
  redislock            1         103 (102–104)      14 (13–15)          error in round 2: 3 of 1000 callers: redislock: not obtained
  rueidis              –           –                 –                  error: dial tcp 127.0.0.1:6379: connect: connection refused
  rueidis tracked     *1           –                14 (14–15)
  stockade            *1         132 (131–132)     *13 (12–15)
Example 9000, 2 cores, 8 GB, Linux 6.1 | go1.26.8, redis-server 7.0.15, SQLite 3.50 | noise 12.1 ms (11.9–15.2) | go run ./herd -profile full -rounds 3 -redis 127.0.0.1:6379

`, "\n")
	if got := printed(t, r, "cold"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := printed(t, r); strings.Count(got, "\nS") != 5 {
		t.Errorf("want all scenarios and cases:\n%s", got)
	}
}

func TestTextOfNothing(t *testing.T) {
	if got := printed(t, &Report{}); got != "" {
		t.Errorf("got %q of an empty report", got)
	}
	got := printed(t, &Report{Scenarios: []Scenario{{Name: "cold"}}})
	if got != "cold\nnothing was measured\n\n" {
		t.Errorf("got %q of a scenario without rows", got)
	}
}

// A line end in an error must not look like another row.
func TestTextIsOneLineForEachContestant(t *testing.T) {
	r := &Report{Command: "x", Scenarios: []Scenario{{Title: "T", Figures: []Figure{{Name: "f", Title: "f\tg"}}, Rows: []Measurement{
		{Contestant: "a\nb", Error: "one\ntwo\tthree\vfour\ffive"},
	}}}}
	if got := printed(t, r); strings.Count(got, "\n") != 5 || !strings.Contains(got, "a b") || !strings.Contains(got, "error: one two three four five\n") {
		t.Errorf("got\n%s", got)
	}
}

func printed(t *testing.T, r *Report, scenarios ...string) string {
	t.Helper()
	var b strings.Builder
	if err := r.Text(&b, scenarios...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
