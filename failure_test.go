package stockade

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
)

var errSource = errors.New("source is down")

// fails is an origin that takes a while and fails.
func fails(d time.Duration, err error) *origin[string] {
	return &origin[string]{load: func(context.Context) (string, error) { time.Sleep(d); return "", err }}
}

// I7: a failing loader runs at most once per FailureBackoff in the fleet.
func TestAFailingLoadRunsOncePerBackoff(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		o := fails(20*time.Millisecond, errSource)
		var caches []*Cache[string]
		for range 4 {
			caches = append(caches, open[string](t, s.Client(t), func(o *Options) { o.FailureBackoff = time.Second }))
		}
		var wg sync.WaitGroup
		for _, c := range caches {
			for range 50 {
				wg.Go(func() {
					_, err := c.Get(t.Context(), "k", o.Load)
					var failed *LoadError
					if !errors.As(err, &failed) || !strings.Contains(err.Error(), errSource.Error()) {
						t.Errorf("got %v", err)
					}
					if failed != nil && !failed.Remote && !errors.Is(err, errSource) {
						t.Errorf("the cause of an own failure is not reachable: %v", err)
					}
				})
			}
		}
		wg.Wait()
		wantLoads(t, o, 1)
		time.Sleep(1100 * time.Millisecond)
		if _, err := caches[3].Get(t.Context(), "k", o.Load); !errors.Is(err, errSource) {
			t.Errorf("after the backoff: got %v", err)
		}
		wantLoads(t, o, 2)
	})
}

func TestWithoutBackoffWaitersStillGetTheFailure(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		noBackoff := func(o *Options) { o.FailureBackoff = -1 }
		a, b := open[string](t, s.Client(t), noBackoff), open[string](t, s.Client(t), noBackoff)
		o := fails(50*time.Millisecond, errSource)
		var wg sync.WaitGroup
		for _, c := range []*Cache[string]{a, b} {
			wg.Go(func() {
				if _, err := c.Get(t.Context(), "k", o.Load); err == nil {
					t.Error("no error")
				}
			})
		}
		wg.Wait()
		wantLoads(t, o, 1)
		_, err := a.Get(t.Context(), "k", returns("v").Load)
		if err != nil {
			t.Errorf("the next load is not free: %v", err)
		}
	})
}

// I6: the end of a failed load makes way for one load, here and elsewhere, however many come at that moment.
func TestFailingLoadsAreNeverTwoAtOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var running, loads atomic.Int64
		load := func(context.Context) (string, error) {
			if running.Add(1) > 1 {
				t.Error("two loads at once")
			}
			defer running.Add(-1)
			loads.Add(1)
			time.Sleep(5 * time.Millisecond)
			return "", errSource
		}
		var wg sync.WaitGroup
		end := time.Now().Add(500 * time.Millisecond)
		for range 4 {
			c := open[string](t, s.Client(t), unhurried, func(o *Options) { o.FailureBackoff = -1 })
			for range 5 {
				wg.Go(func() {
					for time.Now().Before(end) {
						if _, err := c.Get(t.Context(), "k", load); asLoadError(err) == nil {
							t.Errorf("got %v", err)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
		}
		wg.Wait()
		if n := loads.Load(); n < 10 {
			t.Errorf("%d loads: a failure kept the others from loading", n)
		}
	})
}

func TestPanicAndGoexitReachAllCallers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		cause := errors.New("cause")
		for name, fail := range map[string]func(){
			"string": func() { panic("boom") },
			"error":  func() { panic(cause) },
			"nil":    func() { panic(nil) },
			"goexit": runtime.Goexit,
		} {
			c := open[string](t, s.Client(t))
			release := make(chan struct{})
			load := func(context.Context) (string, error) { <-release; fail(); return "", nil }
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					_, err := c.Get(t.Context(), name, load)
					var p *PanicError
					var failed *LoadError
					if !errors.As(err, &failed) {
						t.Errorf("%s: got %v", name, err)
					} else if !failed.Remote && (!errors.As(err, &p) || len(p.Stack) == 0) {
						t.Errorf("%s: got %v without a stack", name, err)
					}
					if name == "error" && failed != nil && !failed.Remote && !errors.Is(err, cause) {
						t.Errorf("%v does not wrap the error of the panic", err)
					}
				})
			}
			time.Sleep(10 * time.Millisecond)
			close(release)
			wg.Wait()
			want(t, name+": leases left", leases(t, s), 0)
		}
	})
}

// leases counts the leases in Redis.
func leases(t testing.TB, s redistest.Server) int {
	t.Helper()
	keys, err := s.Client(t).Keys(context.Background(), "*:l:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(keys)
}

func TestLoadTimeout(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		short := func(o *Options) { o.LoadTimeout = 300 * time.Millisecond; o.MaxLoads = 1 }
		c := open[string](t, s.Client(t), short)
		finish := make(chan struct{})
		stuck := func(context.Context) (string, error) { <-finish; return "late", nil }
		begun := time.Now()
		if _, err := c.Get(t.Context(), "k", stuck); !errors.Is(err, ErrLoadTimeout) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took > 400*time.Millisecond {
			t.Errorf("took %v", took)
		}
		// The lease is free again, elsewhere too; the place among MaxLoads is not.
		want(t, "leases", leases(t, s), 0)
		if _, err := c.Get(t.Context(), "other", returns("v").Load); !errors.Is(err, ErrOverloaded) {
			t.Errorf("a stuck loader gave its permit back: got %v", err)
		}
		close(finish)
		obedient := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		if _, err := c.Get(t.Context(), "k2", obedient); !errors.Is(err, ErrLoadTimeout) {
			t.Errorf("a loader that obeys: got %v", err)
		}
	})
}

// I13: cancelling some callers changes nothing for the others.
func TestCallersThatLeave(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		type contextKey struct{}
		o := &origin[string]{load: func(ctx context.Context) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return fmt.Sprint(ctx.Value(contextKey{}), ctx.Err()), nil
		}}
		first, leave := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "first"))
		left := make(chan error, 1)
		go func() { _, err := c.Get(first, "k", o.Load); left <- err }()
		time.Sleep(10 * time.Millisecond)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if v, err := c.Get(t.Context(), "k", o.Load); err != nil || v != "first<nil>" {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left: got %v", err)
		}
		wg.Wait()
		wantLoads(t, o, 1)
	})
}

// A loader that holds on to its caller's context fails with it. That failure is nobody else's.
func TestAnErrorOfACallersContextIsNotShared(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		for _, how := range []string{"cancel", "deadline"} {
			c := open[string](t, s.Client(t))
			ctx, leave := context.WithCancel(t.Context())
			if how == "deadline" {
				ctx, leave = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			go c.Get(ctx, how, func(context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
			time.Sleep(20 * time.Millisecond)
			o := returns("v")
			done := make(chan error)
			go func() {
				v, err := c.Get(t.Context(), how, o.Load)
				if err == nil && v != "v" {
					err = fmt.Errorf("got %q", v)
				}
				done <- err
			}()
			time.Sleep(20 * time.Millisecond)
			if how == "cancel" {
				leave()
			}
			if err := <-done; err != nil {
				t.Errorf("%s: %v", how, err)
			}
			wantLoads(t, o, 1)
			leave()
		}
	})
}

func TestAbsent(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.NotFound = sql.ErrNoRows; o.AbsentTTL = 200 * time.Millisecond })
		o := fails(0, fmt.Errorf("product 7: %w", sql.ErrNoRows))
		for i := range 3 {
			_, err := c.Get(t.Context(), "k", o.Load)
			if !errors.Is(err, ErrNotFound) || !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("Get %d: got %v", i, err)
			}
		}
		wantLoads(t, o, 1)
		if _, err := c.Lookup(t.Context(), "k"); !errors.Is(err, ErrNotFound) || !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("Lookup: got %v", err)
		}
		time.Sleep(250 * time.Millisecond)
		if v, err := c.Get(t.Context(), "k", returns("v").Load); v != "v" || err != nil {
			t.Errorf("after AbsentTTL: got %q, %v", v, err)
		}
	})
}

func TestAbsenceThatIsNotRemembered(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.AbsentTTL = -1; o.TTL = 100 * time.Millisecond; o.KeepFor = time.Hour })
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		o := fails(0, ErrNotFound)
		for range 2 {
			if _, err := c.Get(t.Context(), "k", o.Load); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v", err)
			}
		}
		wantLoads(t, o, 2)
		n, err := s.Client(t).DBSize(t.Context()).Result()
		if err != nil || n != 0 {
			t.Errorf("%d keys left, %v", n, err) // the kept value went too
		}
	})
}

func TestACrashedHolderDelaysOthersByItsLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.RedisTimeout = 100 * time.Millisecond; o.LeaseTTL = 400 * time.Millisecond })
		crash(t, s, c, "k", 400*time.Millisecond)
		begun := time.Now()
		if v, err := c.Get(t.Context(), "k", returns("v").Load); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if took := time.Since(begun); took < 300*time.Millisecond || took > 700*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// crash takes the lease of a key for a holder that will not be heard of again.
func crash[T any](t testing.TB, s redistest.Server, c *Cache[T], key string, lease time.Duration) {
	t.Helper()
	a, err := script.Acquire(context.Background(), s.Client(t), c.view.names(key), newToken(), lease, 1<<60, nil, "")
	if err != nil || a.Status != script.Granted {
		t.Fatalf("acquire: %v, %v", a, err)
	}
}

func TestOverloadSkipsRefreshesAndBoundsLoads(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) {
			o.MaxLoads = 2
			o.TTL = 50 * time.Millisecond
			o.StaleFor = time.Hour
			o.LoadTimeout = time.Second
		})
		if err := c.Set(t.Context(), "stale", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		finish := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				_, _ = c.Get(t.Context(), fmt.Sprint(i), func(context.Context) (string, error) { <-finish; return "v", nil })
			})
		}
		for c.Stats().Loading < 2 {
			time.Sleep(time.Millisecond)
		}
		o := returns("new")
		if v, err := c.Get(t.Context(), "stale", o.Load); v != "v" || err != nil {
			t.Errorf("stale: got %q, %v", v, err)
		}
		want(t, "skipped", c.Stats().Skipped, 1)
		begun := time.Now()
		if _, err := c.Get(t.Context(), "third", o.Load); !errors.Is(err, ErrOverloaded) {
			t.Errorf("third: got %v", err)
		}
		if took := time.Since(begun); took < 900*time.Millisecond || took > 1500*time.Millisecond {
			t.Errorf("overloaded after %v", took)
		}
		close(finish)
		wg.Wait()
		wantLoads(t, o, 0)
	})
}

func TestALoaderThatAsksForItsOwnKey(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads = 1 })
		_, err := c.Get(t.Context(), "a", func(ctx context.Context) (string, error) {
			return c.Get(ctx, "b", func(ctx context.Context) (string, error) { // within one permit
				return c.With(Policy{TTL: time.Second}).Get(ctx, "a", returns("v").Load)
			})
		})
		if !errors.Is(err, ErrReentrant) {
			t.Errorf("got %v", err)
		}
		var inner context.Context
		if _, err := c.Get(t.Context(), "c", func(ctx context.Context) (string, error) { inner = ctx; return "v", nil }); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(context.WithoutCancel(inner), "c", returns("v").Load); err != nil || v != "v" {
			t.Errorf("with the context of a load that has ended: got %q, %v", v, err)
		}
	})
}

// crashAt is crash for a key whose stale value has the given head.
func crashAt[T any](t testing.TB, s redistest.Server, c *Cache[T], key string, head *string) {
	t.Helper()
	a, err := script.Acquire(context.Background(), s.Client(t), c.view.names(key), newToken(), time.Minute, 1<<60, head, "")
	if err != nil || a.Status != script.Granted {
		t.Fatalf("acquire: %v, %v", a, err)
	}
}
