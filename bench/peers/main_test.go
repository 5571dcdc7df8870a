package peers

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// left are the goroutines that the library of a contestant leaves behind.
var left = map[string][]goleak.Option{
	// It evicts without end.
	"sturdyc": {goleak.IgnoreAnyFunction("github.com/viccon/sturdyc.(*Client[...]).performContinuousEvictions.func1")},
	// Its connections, as they are closed, let it send a last command. It may dial for that, and nobody closes what it dialed.
	"rueidisaside": {
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._background"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._background.func1"),
	},
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, slices.Concat(left["sturdyc"], left["rueidisaside"])...)
}

// leavesNothing waits for longer than goleak does: rueidis takes up to a second to end.
func leavesNothing(t *testing.T, name string, before goleak.Option) {
	t.Helper()
	var err error
	for start := time.Now(); time.Since(start) < 2*time.Second; {
		if err = goleak.Find(slices.Concat(left[name], []goleak.Option{before})...); err == nil {
			return
		}
	}
	t.Error(err)
}
