package herd

import (
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at is noon and so many milliseconds.
func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

func TestOverNeeded(t *testing.T) {
	begun := func(id int, times ...int) (all []origin.Begun) {
		for _, ms := range times {
			all = append(all, origin.Begun{ID: id, At: at(ms)})
		}
		return all
	}
	for what, test := range map[string]struct {
		before, counted []origin.Begun
		want            float64
	}{
		"one for each expiry":                {nil, begun(1, 0, 1000, 2000), 1},
		"two at once":                        {nil, begun(1, 0, 1, 1000, 1001), 2},
		"a chain of needless ones":           {nil, begun(1, 0, 200, 400, 1000), 2},
		"a refresh ahead of time":            {nil, begun(1, 0, 500, 1000), 1},
		"other keys do not matter":           {nil, append(begun(1, 0, 1000), begun(2, 1, 1001)...), 1},
		"the one before counts as the first": {begun(1, -1000, -10), begun(1, 0, 990), 2},
		"nothing":                            {nil, nil, 0},
	} {
		if got := overNeeded(test.before, test.counted, 450*time.Millisecond); got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
}

func TestExpiries(t *testing.T) {
	reads := func(id int, times ...int) (all []Read) {
		for _, ms := range times {
			all = append(all, Read{ID: id, At: at(ms)})
		}
		return all
	}
	for what, test := range map[string]struct {
		reads []Read
		want  int
	}{
		"read once":                     {reads(1, 0), 1},
		"fresh until its TTL":           {reads(1, 0, 500, 1019), 1},
		"expired at its TTL":            {reads(1, 0, 1020), 2},
		"nobody read when it expired":   {reads(1, 0, 5000), 2},
		"keys expire by themselves":     {append(reads(1, 0, 1500), reads(2, 100, 1050)...), 3},
		"in whatever order they come":   {reads(1, 2600, 0, 1500), 3},
		"the next TTL begins at a load": {reads(1, 0, 1500, 2100, 2530), 3},
	} {
		if got := expiries(test.reads, time.Second, 20*time.Millisecond); got != test.want {
			t.Errorf("%s: %d, want %d", what, got, test.want)
		}
	}
}
