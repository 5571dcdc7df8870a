package stockade

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settle says what a loader's end means: an entry, or an error that Is ErrNotFound or ErrClosed or is a *LoadError.
func (f *flight) settle(r loaded) (boxed, error) {
	var panicked *PanicError
	switch {
	case r.err == nil:
		if err := f.checkEntry(r.entry); err != nil {
			return boxed{}, &LoadError{Err: err}
		}
		e := r.entry
		e.Age, e.Source = r.took, Loaded
		return e, nil
	case errors.As(r.err, &panicked):
		return boxed{}, &LoadError{Err: r.err}
	case f.ctx.Err() != nil:
		return boxed{}, context.Cause(f.ctx)
	case errors.Is(r.err, ErrNotModified) && f.load.entries && f.saw.old() != nil:
		e, old := r.entry, f.saw.old()
		if err := f.checkEntry(e); err != nil {
			return boxed{}, &LoadError{Err: err}
		}
		e.Value, e.ETag, e.Age, e.Source = old.Value, old.ETag, r.took, Loaded
		return e, nil
	case errors.Is(r.err, ErrNotFound):
		return boxed{}, f.absent(r.err)
	case f.opts.NotFound != nil && errors.Is(r.err, f.opts.NotFound):
		return boxed{}, f.absent(r.err)
	case errors.Is(r.err, context.DeadlineExceeded) && r.took >= f.opts.LoadTimeout:
		return boxed{}, &LoadError{Err: ErrLoadTimeout}
	}
	return boxed{}, &LoadError{Err: r.err}
}

// absent is an error that Is ErrNotFound, Options.NotFound and what the loader said, without saying it twice.
func (f *flight) absent(err error) error {
	switch {
	case err == ErrNotFound, err == f.opts.NotFound:
		return f.notFound
	case !errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case f.opts.NotFound != nil && !errors.Is(err, f.opts.NotFound):
		return fmt.Errorf("%w: %w", f.notFound, err)
	}
	return err
}

// isPrivate reports whether an error stems from the context of the call that started the flight: its loader held on to
// that context. Such an error is nobody else's.
func (f *flight) isPrivate(err error) bool {
	switch {
	case err == nil || errors.Is(err, ErrLoadTimeout) || errors.Is(err, ErrClosed) || isAbsent(err):
		return false
	case errors.Is(err, context.Canceled):
		return true // of whatever context: it says that somebody left, nothing about the key
	}
	return f.caller.Err() != nil && (errors.Is(err, f.caller.Err()) || errors.Is(err, context.Cause(f.caller)))
}

// checkEntry refuses lifetimes that a loader cannot mean.
func (c *core) checkEntry(e boxed) error {
	if e.TTL != 0 && (e.TTL < time.Millisecond || e.TTL > maxLifetime) {
		return configError("Entry.TTL", e.TTL, "must be zero, or from 1 ms to 100 years")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Entry.StaleFor", e.StaleFor}, {"Entry.KeepFor", e.KeepFor}} {
		if d.value > 0 && d.value < time.Millisecond || d.value > maxLifetime {
			return configError(d.field, d.value, "must be zero, from 1 ms to 100 years, or negative for none")
		}
	}
	return nil
}
