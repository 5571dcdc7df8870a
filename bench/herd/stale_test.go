package herd

import (
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

func TestFindStale(t *testing.T) {
	changed := func(id, version, ms int) Invalidated {
		return Invalidated{Item: origin.Item{ID: id, Version: version}, Done: at(ms)}
	}
	changes := []Invalidated{changed(1, 3, 1000), changed(1, 2, 100), changed(2, 9, 100)}
	for what, test := range map[string]struct {
		read Read
		want staleness
	}{
		"before the invalidation":         {Read{ID: 1, Version: 1, At: at(50)}, staleness{}},
		"at its end":                      {Read{ID: 1, Version: 1, At: at(100)}, staleness{}},
		"after it, the new value":         {Read{ID: 1, Version: 2, At: at(101)}, staleness{}},
		"after it, the old one":           {Read{ID: 1, Version: 1, At: at(101)}, staleness{reads: 1}},
		"long after it":                   {Read{ID: 1, Version: 1, At: at(351)}, staleness{reads: 1, kept: 1}},
		"long after two":                  {Read{ID: 1, Version: 1, At: at(1251)}, staleness{reads: 1, kept: 2}},
		"a value that is newer than that": {Read{ID: 1, Version: 7, At: at(2000)}, staleness{}},
		"one version behind":              {Read{ID: 1, Version: 2, At: at(1001)}, staleness{reads: 1}},
		"an error":                        {Read{ID: 1, At: at(2000)}, staleness{}},
		"a key that was not invalidated":  {Read{ID: 5, Version: 1, At: at(2000)}, staleness{}},
	} {
		if got := findStale([]Read{test.read}, changes, 250*time.Millisecond); got != test.want {
			t.Errorf("%s: %+v, want %+v", what, got, test.want)
		}
	}
	twice := Read{ID: 2, Version: 1, At: at(400)}
	if got := findStale([]Read{twice, twice}, changes, 250*time.Millisecond); got != (staleness{reads: 2, kept: 1}) {
		t.Errorf("an old value that is read twice: %+v", got)
	}
}
