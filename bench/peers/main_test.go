package peers

import (
	"testing"

	"go.uber.org/goleak"
)

// sturdycEvicts is the goroutine of sturdyc that has no end.
var sturdycEvicts = goleak.IgnoreAnyFunction("github.com/viccon/sturdyc.(*Client[...]).performContinuousEvictions.func1")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, sturdycEvicts) }
