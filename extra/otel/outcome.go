package otel

import (
	"context"
	"errors"
	"slices"

	"github.com/stockade-cache/stockade"
)

// outcomeOf is what a span came to, in one of a few words.
func outcomeOf(b stockade.SpanBegin, e stockade.SpanEnd) string {
	switch b.Span {
	case stockade.SpanRead, stockade.SpanMiss:
		if e.Err != nil {
			return failureOf(e.Err)
		}
		if b.Batch {
			return "ok"
		}
		return e.Source.String()
	case stockade.SpanLoad:
		if e.RuledOut == len(b.Keys) {
			return "ruled_out"
		}
	case stockade.SpanCommit:
		return worst(e.Outcomes)
	case stockade.SpanRefresh:
		if e.Err == nil && e.Skipped {
			return "skipped"
		}
	}
	if e.Err != nil {
		return failureOf(e.Err)
	}
	return "ok"
}

// worst is the outcome of a commit that one looks for first.
func worst(list []stockade.Outcome) string {
	for _, o := range []stockade.Outcome{stockade.Unknown, stockade.Rejected, stockade.Stored} {
		if slices.Contains(list, o) {
			return o.String()
		}
	}
	return "not_stored"
}

// failureOf says in a word what an error is. A loader that panics with an error, or wraps one, is judged by what it did.
func failureOf(err error) string {
	var panicked *stockade.PanicError
	var load *stockade.LoadError
	switch {
	case errors.As(err, &panicked):
		return "panicked"
	case errors.Is(err, stockade.ErrLoadTimeout):
		return "timed_out"
	case errors.As(err, &load):
		return "failed"
	case errors.Is(err, stockade.ErrNotFound):
		return "absent"
	case errors.Is(err, stockade.ErrMiss):
		return "miss"
	case errors.Is(err, stockade.ErrLockLost):
		return "lost"
	case errors.Is(err, stockade.ErrClosed):
		return "closed"
	case errors.Is(err, stockade.ErrRedis):
		return "redis"
	case errors.Is(err, stockade.ErrOverloaded):
		return "overloaded"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "left"
	}
	return "failed"
}

// words are all that outcomeOf says of the spans that are measured.
var words = []string{
	"ok", "ruled_out", "stored", "not_stored", "rejected", "unknown",
	"panicked", "timed_out", "failed", "absent", "miss", "lost", "closed", "redis", "overloaded", "left",
}

// isFailure reports whether a span that came to an error failed by it.
func isFailure(outcome string) bool { return outcome != "absent" && outcome != "miss" }
