package stockade

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Errors that a caller decides on. All are found by [errors.Is], also inside others.
var (
	// ErrNotFound says that the source does not have the key. A loader returns it (or the error of
	// Options.NotFound), and callers get it for as long as the absence is remembered.
	ErrNotFound = errors.New("stockade: not found")
	// ErrMiss is returned by Lookup when nothing is known about the key.
	ErrMiss = errors.New("stockade: miss")
	// ErrNotModified is returned by an EntryLoader whose old value still stands.
	ErrNotModified = errors.New("stockade: not modified")
	// ErrLocked says that a lock is held by another.
	ErrLocked = errors.New("stockade: locked")
	// ErrLockLost says that a lock is no longer held: it expired, was released or was taken away. It is also the
	// cause of the end of a Lock's context.
	ErrLockLost = errors.New("stockade: lock lost")
	// ErrLoadTimeout says that a load, or the wait for another's load, took longer than Options.LoadTimeout.
	ErrLoadTimeout = errors.New("stockade: load timed out")
	// ErrOverloaded says that a load found no free place among Options.MaxLoads for Options.LoadTimeout.
	ErrOverloaded = errors.New("stockade: too many loads")
	// ErrReentrant says that a loader asked for the key that it is loading.
	ErrReentrant = errors.New("stockade: loader asks for its own key")
	// ErrRedis says that Redis failed, and wraps the client's error.
	ErrRedis = errors.New("stockade: redis failed")
	// ErrClosed is returned by everything after Close.
	ErrClosed = errors.New("stockade: closed")
)

// LoadError is every failure of a loader. Callers of the flight that failed can reach the cause by [errors.Is]
// and [errors.As]; in other processes, and while Options.FailureBackoff keeps the key from being loaded, only its
// text is known.
type LoadError struct {
	Remote bool // the load failed elsewhere or earlier
	Err    error

	stamp string // of the lease that the load had; tells failures of one key apart
}

func (e *LoadError) Error() string {
	if e.Remote {
		return "stockade: remote load: " + e.Err.Error()
	}
	return "stockade: load: " + e.Err.Error()
}

func (e *LoadError) Unwrap() error { return e.Err }

func asLoadError(err error) *LoadError {
	var failed *LoadError
	errors.As(err, &failed)
	return failed
}

// PanicError is the Err of a [LoadError] whose loader panicked, or called [runtime.Goexit] (then Value is "runtime.Goexit"), or
// returned an error whose methods panic, a nil *T in an error above all.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// KeysError says which of several keys failed, and how. The others succeeded.
type KeysError struct {
	Errs map[string]error
}

func (e *KeysError) Error() string {
	if e == nil {
		e = &KeysError{}
	}
	keys := make([]string, 0, len(e.Errs))
	for k := range e.Errs {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	const most = 3
	var b strings.Builder
	fmt.Fprintf(&b, "stockade: %d keys failed", len(keys))
	for i, k := range keys {
		if i == most {
			b.WriteString("; …")
			break
		}
		fmt.Fprintf(&b, "; %.64q: %v", k, e.Errs[k])
	}
	return b.String()
}

func (e *KeysError) Unwrap() []error {
	if e == nil {
		return nil
	}
	errs := make([]error, 0, len(e.Errs))
	for _, err := range e.Errs {
		errs = append(errs, err)
	}
	return errs
}

var (
	errNilContext = errors.New("stockade: ctx is nil: a context is required")
	errNilLoader  = errors.New("stockade: load is nil: a loader is required")
)

// contextError says why a context has ended: an error that Is ctx.Err and its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// redisError wraps an error of the client. redis.Nil never comes here: a missing key is not a failure.
func redisError(err error) error { return fmt.Errorf("%w: %w", ErrRedis, err) }

// configError names the field and the value that New or With refuses.
func configError(field string, value any, want string) error {
	return fmt.Errorf("stockade: %s is %v: %s", field, value, want)
}
