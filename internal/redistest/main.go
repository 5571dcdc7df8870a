package redistest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package: it runs the tests, ends the shared server, and fails when a goroutine is left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(run{m})
}

type run struct{ *testing.M }

func (r run) Run() int {
	code := r.M.Run()
	shared.stop()
	if code == 0 {
		// A pool of go-redis that cannot dial sleeps for a second before it sees that it is closed; goleak waits for half
		// of that.
		poll(3*time.Second, func() bool { return goleak.Find() == nil })
	}
	return code
}
