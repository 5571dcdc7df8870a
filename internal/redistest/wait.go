package redistest

import (
	"testing"
	"time"
)

// Eventually polls until the condition holds, and fails the test when it does not within the given time.
// In a bubble the time is the bubble's.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	if !poll(within, holds) {
		t.Fatalf("not within %v: %s", within, what)
	}
}

func poll(within time.Duration, holds func() bool) bool {
	for start := time.Now(); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > within {
			return false
		}
	}
	return true
}
