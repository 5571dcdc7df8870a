package redlock

import (
	"errors"
	"testing"

	"github.com/stockade-cache/stockade"
)

// TestErrorWithoutFailures: after a stop all votes may be there, and too late.
func TestErrorWithoutFailures(t *testing.T) {
	if err := redisError(nil); !errors.Is(err, stockade.ErrRedis) || !errors.Is(err, errTooLate) {
		t.Errorf("got %v, want ErrRedis and that it was too late", err)
	}
}
