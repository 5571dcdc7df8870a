package prom

import (
	"context"
	"errors"

	"github.com/stockade-cache/stockade"
)

// Values of the label outcome.
const (
	cancelled = "cancelled" // the cache was closed, or a caller's context ended
	timeout   = "timeout"   // LoadTimeout was over
	failed    = "failed"
)

// failure says how something ended that has an error. Whatever a loader panicked with, it failed.
func failure(err error) string {
	switch {
	case isPanic(err):
		return failed
	case errors.Is(err, stockade.ErrLoadTimeout):
		return timeout
	case errors.Is(err, stockade.ErrClosed), errors.Is(err, context.Canceled):
		return cancelled
	}
	return failed
}

func isPanic(err error) bool { return errors.As(err, new(*stockade.PanicError)) }

// loadOutcome says what the loader found, and where that is a value what became of it.
func loadOutcome(e stockade.LoadEvent) string {
	switch {
	case errors.Is(e.Err, stockade.ErrNotFound) && !isPanic(e.Err):
		return "absent"
	case e.Err != nil:
		return failure(e.Err)
	case e.Outcome == stockade.NotStored:
		return "not_stored"
	}
	return e.Outcome.String() // stored, rejected, unknown
}

func waitOutcome(err error) string {
	if err == nil {
		return "served"
	}
	return failure(err)
}

func refreshOutcome(e stockade.RefreshEvent) string {
	switch {
	case e.Skipped:
		return "skipped"
	case e.Err != nil:
		return failed
	}
	return "done"
}

// lockWaitOutcome says whether a wait for a lock came to its end.
func lockWaitOutcome(err error) string {
	switch {
	case err == nil:
		return "taken"
	case errors.Is(err, stockade.ErrLocked):
		return "given_up"
	}
	return failure(err)
}
