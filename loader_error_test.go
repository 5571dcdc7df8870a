package stockade

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// noted is an error whose nil pointer cannot say what it is.
type noted struct{ note string }

func (e *noted) Error() string { return e.note }

// dodgy is an error that panics when it is asked what it is, and so is what it wraps.
type dodgy struct{}

func (dodgy) Error() string { return "dodgy" }
func (dodgy) Is(error) bool { panic("no idea") }

// wraps is an error whose nil pointer cannot say what it wraps.
type wraps struct{ err error }

func (e *wraps) Error() string { return "wraps" }
func (e *wraps) Unwrap() error { return e.err }

// An error that cannot say what it is fails the load like a panic of the loader. On the goroutine of a flight it would end
// the process.
func TestErrorsThatPanic(t *testing.T) {
	for name, bad := range map[string]error{
		"a nil pointer": (*noted)(nil), "Is": dodgy{}, "Unwrap": (*wraps)(nil), "inside": fmt.Errorf("more: %w", dodgy{}),
		"of a key": &KeysError{Errs: map[string]error{"a": (*noted)(nil), "b": errSource}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				c := open[string](t, s.Client(t), func(o *Options) { o.TTL, o.StaleFor = time.Second, time.Hour })
				check := func(how string, err error) {
					t.Helper()
					var panicked *PanicError
					if !errors.As(err, &panicked) || !strings.Contains(panicked.Error(), "cannot say what it is") {
						t.Errorf("%s: got %v, want a PanicError", how, err)
					}
				}
				fails := func(context.Context) (string, error) { return "", bad }
				failMany := func(context.Context, []string) (map[string]string, error) { return nil, bad }
				if _, ok := bad.(*KeysError); !ok {
					_, err := c.Get(t.Context(), "k", fails)
					check("Get", err)
					_, err = c.Get(t.Context(), "panics", func(context.Context) (string, error) { panic(bad) })
					want(t, "a panic with it is a PanicError", errors.As(err, new(*PanicError)), true)
				}
				_, err := c.GetMany(t.Context(), []string{"a", "b"}, failMany)
				check("GetMany", err.(*KeysError).Errs["a"])
				want(t, "error", c.Set(t.Context(), "stale", "old"), nil)
				time.Sleep(2 * time.Second)
				v, err := c.Get(t.Context(), "stale", fails)
				want(t, "stale value", v, "old")
				want(t, "error", err, nil)
				time.Sleep(time.Second)
				s.Mini.SetError("LOADING down")
				_, err = c.GetMany(t.Context(), []string{"a"}, failMany)
				check("GetMany without Redis", err.(*KeysError).Errs["a"])
			})
		})
	}
}

// A *KeysError that is nil names no keys: alone it is no error, inside another one that fails all.
func TestANilKeysError(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		load := func(fails error) BatchLoader[string] {
			return func(context.Context, []string) (map[string]string, error) { return map[string]string{"a": "v"}, fails }
		}
		got, err := c.GetMany(t.Context(), []string{"a", "absent"}, load((*KeysError)(nil)))
		want(t, "value", got["a"], "v")
		want(t, "error", err, nil)
		_, err = c.GetMany(t.Context(), []string{"b", "c"}, load(fmt.Errorf("more: %w", (*KeysError)(nil))))
		want(t, "keys that failed", len(err.(*KeysError).Errs), 2)
	})
}

// A loader that panics with ErrNotFound has not said that the key does not exist.
func TestAPanicIsNoAbsence(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var refreshed []RefreshEvent
		c := open[string](t, s.Client(t), func(o *Options) {
			o.TTL, o.StaleFor = time.Second, time.Hour
			o.Observer.Refresh = func(e RefreshEvent) { refreshed = append(refreshed, e) }
		})
		panics := func(context.Context) (string, error) { panic(ErrNotFound) }
		_, err := c.Get(t.Context(), "k", panics)
		want(t, "a failure", isAbsent(err), false)
		_, err = c.Lookup(t.Context(), "k")
		want(t, "error of Lookup", err, ErrMiss)
		_, err = c.GetMany(t.Context(), []string{"many"}, func(context.Context, []string) (map[string]string, error) { panic(ErrNotFound) })
		want(t, "failed", err != nil, true)
		_, err = c.Lookup(t.Context(), "many")
		want(t, "error of Lookup", err, ErrMiss)
		want(t, "failures", c.Stats().LoadErrors, 2)

		want(t, "error", c.Set(t.Context(), "stale", "old"), nil)
		time.Sleep(2 * time.Second)
		v, err := c.Get(t.Context(), "stale", panics)
		want(t, "stale value", v, "old")
		want(t, "error", err, nil)
		synctest.Wait()
		if len(refreshed) != 1 || refreshed[0].Err == nil {
			t.Errorf("got %v, want a refresh that failed", refreshed)
		}
	})
}
