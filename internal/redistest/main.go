package redistest

import (
	"testing"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package: it runs the tests, ends the shared server, and fails when a goroutine is left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(run{m})
}

type run struct{ *testing.M }

func (r run) Run() int {
	defer shared.stop()
	return r.M.Run()
}
