package stockade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestGetManyFails(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		load  BatchLoader[string]
		is    error
		fails []string
		has   []string
	}{
		"error":   {func(context.Context, []string) (map[string]string, error) { return nil, broken }, broken, []string{"a", "absent", "b"}, nil},
		"map too": {func(_ context.Context, k []string) (map[string]string, error) { return valuesOf(k), broken }, broken, []string{"a", "absent", "b"}, nil},
		"some": {func(_ context.Context, k []string) (map[string]string, error) {
			return valuesOf(k), &KeysError{Errs: map[string]error{"a": broken}}
		}, broken, []string{"a"}, []string{"b"}},
		"panic": {func(context.Context, []string) (map[string]string, error) { panic(broken) }, broken, []string{"a", "absent", "b"}, nil},
		"panic some": {func(context.Context, []string) (map[string]string, error) {
			panic(&KeysError{Errs: map[string]error{"a": broken}})
		}, broken, []string{"a", "absent", "b"}, nil},
		"goexit":    {func(context.Context, []string) (map[string]string, error) { runtime.Goexit(); return nil, nil }, nil, []string{"a", "absent", "b"}, nil},
		"not found": {func(context.Context, []string) (map[string]string, error) { return nil, ErrNotFound }, nil, nil, nil},
		"nothing":   {func(context.Context, []string) (map[string]string, error) { return nil, nil }, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				c := open[string](t, s.Client(t))
				if err := c.Set(t.Context(), "stored", "v of stored"); err != nil {
					t.Fatal(err)
				}
				got, err := c.GetMany(t.Context(), []string{"a", "stored", "b", "absent"}, test.load)
				wantValues(t, got, nil, append(test.has, "stored")...)
				var keys *KeysError
				var failed *LoadError
				if len(test.fails) == 0 {
					want(t, "error", err, nil)
					return
				}
				if !errors.As(err, &keys) || !errors.As(err, &failed) || test.is != nil && !errors.Is(err, test.is) {
					t.Fatalf("got %v", err)
				}
				want(t, "failed", fmt.Sprint(slices.Sorted(maps.Keys(keys.Errs))), fmt.Sprint(test.fails))
				_, err = open[string](t, s.Client(t)).Get(t.Context(), "a", returns("v").Load)
				if !errors.As(err, &failed) || !failed.Remote {
					t.Errorf("elsewhere, within the backoff: %v", err)
				}
				if n := leases(t, s); n != 0 {
					t.Errorf("%d leases are left", n)
				}
			})
		})
	}
}

// A nil *KeysError in an error is no failure.
func TestABatchLoaderReturnsATypedNil(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
			var failed *KeysError
			return valuesOf(keys), failed
		})
		wantValues(t, got, err, "a", "b")
	})
}

// A loader that panics says nothing about the keys.
func TestABatchLoaderPanicsWithNotFound(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) { panic(ErrNotFound) })
		if err == nil {
			t.Errorf("panic: got %v, %v", got, err)
		}
	})
}

// A *KeysError counts inside another error too.
func TestABatchLoaderWrapsAKeysError(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
			return valuesOf(keys), fmt.Errorf("db: %w", &KeysError{Errs: map[string]error{"b": ErrNotFound}})
		})
		wantValues(t, got, err, "a") // and b does not exist
		if _, err := c.Lookup(t.Context(), "b"); !errors.Is(err, ErrNotFound) {
			t.Errorf("b: %v", err)
		}
	})
}

// I7: an error of one caller's context is not another's.
func TestABatchKeepsAPrivateErrorToItself(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads = 1 })
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _ = c.GetMany(ctx, []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) { <-ctx.Done(); return nil, ctx.Err() })
		}()
		synctest.Wait()
		var o table
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := c.GetMany(t.Context(), []string{"b", "c", "a"}, o.load)
			wantValues(t, got, err, "a", "b", "c")
		}()
		time.Sleep(time.Second)
		cancel()
		<-done
		time.Sleep(time.Minute)
		want(t, "permits", c.view.permits.TryAcquire(1), true)
		c.view.permits.Release(1)
	})
}

// A loader that asks for a key that it is loading gets ErrReentrant for that; its other keys need no place of their own.
func TestGetManyInALoader(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads = 1 })
		var inner table
		outer := table{before: func(ctx context.Context, _ []string) error {
			got, err := c.GetMany(ctx, []string{"a", "c"}, inner.load)
			wantValues(t, got, nil, "c")
			var keys *KeysError
			if !errors.As(err, &keys) || len(keys.Errs) != 1 || keys.Errs["a"] != ErrReentrant {
				t.Errorf("got %v", err)
			}
			if _, err := c.Get(ctx, "b", returns("v").Load); err != ErrReentrant {
				t.Errorf("Get: %v", err)
			}
			return nil
		}}
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, outer.load)
		wantValues(t, got, err, "a", "b")
		want(t, "loads", inner.loads(), "[[c]]")
	})
}

// Batches in batches need no places of their own.
func TestBatchesInBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads, o.LoadTimeout = 1, 5*time.Second })
		var depth func(n int) BatchLoader[string]
		depth = func(n int) BatchLoader[string] {
			return func(ctx context.Context, keys []string) (map[string]string, error) {
				if n > 0 {
					var more []string
					for _, k := range keys {
						more = append(more, k+"x", k)
					}
					got, err := c.GetMany(ctx, more, depth(n-1))
					var ke *KeysError
					if !errors.As(err, &ke) || len(ke.Errs) != len(keys) || len(got) != len(keys) {
						t.Errorf("depth %d: %v, %v", n, got, err)
					}
				}
				return valuesOf(keys), nil
			}
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				keys := []string{fmt.Sprint(i), fmt.Sprint("s", i)}
				got, err := c.GetMany(t.Context(), keys, depth(4))
				wantValues(t, got, err, keys...)
			})
		}
		wg.Wait()
		want(t, "permits", c.view.permits.TryAcquire(1), true)
		c.view.permits.Release(1)
		want(t, "filling", int(c.view.filling.count.Load()), 0)
	})
}

// The Guard is asked once for a whole batch, and what it rules out is not loaded.
func TestGetManyAsksTheGuardOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		g := &guard{may: func(_ context.Context, keys []string) (may []bool, _ error) {
			for _, key := range keys {
				may = append(may, key != "no")
			}
			return may, nil
		}}
		c := open[string](t, s.Client(t), guarded(g))
		var o table
		got, err := c.GetMany(t.Context(), []string{"a", "no", "b"}, o.load)
		wantValues(t, got, err, "a", "b")
		want(t, "loads", o.loads(), "[[a b]]")
		want(t, "questions", g.asked.Load(), 1)
		if _, err := c.Lookup(t.Context(), "no"); !errors.Is(err, ErrMiss) {
			t.Errorf("what is ruled out is not stored: %v", err)
		}
		got, err = c.GetMany(t.Context(), []string{"no"}, o.load)
		wantValues(t, got, err)
		want(t, "loads", o.loads(), "[[a b]]")
		if n := leases(t, s); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// What the Observer keeps does not change.
func TestAGuardEventKeepsItsKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		g := &guard{may: func(context.Context, []string) ([]bool, error) { return nil, errors.New("x") }}
		var event GuardEvent
		c := open[string](t, s.Client(t), guarded(g), func(o *Options) { o.Observer.Guard = func(e GuardEvent) { event = e } })
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
			m := valuesOf(keys)
			for i := range keys {
				keys[i] = "id:" + keys[i]
			}
			return m, nil
		})
		wantValues(t, got, err, "a", "b")
		want(t, "keys", fmt.Sprint(event.Keys), "[a b]")
	})
}
