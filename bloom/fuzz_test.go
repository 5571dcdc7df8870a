package bloom

import (
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// What was added may exist, whatever else was, and whatever the shape of the filter is.
func FuzzAdded(f *testing.F) {
	filter := open(f, redistest.Fake(f).Client(f))
	f.Add("key", int64(1000), uint8(20))
	f.Add("", int64(1), uint8(1))
	f.Add("\xff{}%", int64(100_000), uint8(255))
	f.Fuzz(func(t *testing.T, key string, keys int64, rate uint8) {
		d, ok := designFor(min(max(keys, 1), 1<<20), (float64(rate)+0.5)/257, 1<<18)
		if !ok {
			return // too large a filter: New refuses it
		}
		filter.design = d
		some := []string{key, key + "2", "3" + key}
		build(t, filter, some[0])
		if err := filter.AddMany(t.Context(), some[1:]); err != nil {
			t.Fatal(err)
		}
		wantMay(t, filter, true, some...)
		if g := parseGeneration(filter.state.Load().current.text); g.foreign || g.design != d {
			t.Errorf("got %+v, want %+v", g, d)
		}
	})
}
