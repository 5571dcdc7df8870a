package stockade

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// guard is a Guard that counts what it is asked.
type guard struct {
	asked atomic.Int64
	may   func(ctx context.Context, keys []string) ([]bool, error)
}

func (g *guard) MayExist(ctx context.Context, keys []string) ([]bool, error) {
	g.asked.Add(1)
	return g.may(ctx, keys)
}

// says is a guard that always answers the same.
func says(may bool) *guard {
	return &guard{may: func(context.Context, []string) ([]bool, error) { return []bool{may}, nil }}
}

func guarded(g Guard) func(*Options) { return func(o *Options) { o.Guard = g } }

// The Guard is asked when a missing key would be loaded: no hit, stale value or refresh asks it.
func TestTheGuardIsAskedBeforeLoadsOnly(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		g := says(true)
		c := open[string](t, s.Client(t), guarded(g), func(o *Options) { o.TTL, o.StaleFor = 100*time.Millisecond, time.Hour })
		o := returns("v")
		get := func() {
			t.Helper()
			if v, err := c.Get(t.Context(), "k", o.Load); v != "v" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		}
		get()
		get()
		want(t, "asked by a miss and a hit", g.asked.Load(), 1)
		time.Sleep(150 * time.Millisecond)
		g.may = says(false).may
		get() // stale
		redistest.Eventually(t, 5*time.Second, "the refresh has ended", func() bool { return c.Stats().Refreshes == 1 && c.Stats().Flights == 0 })
		wantLoads(t, o, 2)
		want(t, "asked by a refresh", g.asked.Load(), 1)
		want(t, "ruled out", c.Stats().RuledOut, 0)
	})
}

// A key that cannot exist is not found, by every call and in every process, without a load and without a trace in Redis.
func TestAKeyThatCannotExistIsNotLoaded(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		noRows := errors.New("no rows")
		g := &guard{may: func(_ context.Context, keys []string) ([]bool, error) {
			time.Sleep(20 * time.Millisecond)
			return []bool{keys[0] == "there"}, nil
		}}
		o := returns("v")
		var wg sync.WaitGroup
		caches := openAll(t, 4, func() redis.UniversalClient { return s.Client(t) }, guarded(g), func(o *Options) { o.NotFound = noRows })
		for _, c := range caches {
			for range 20 {
				wg.Go(func() {
					if _, err := c.Get(t.Context(), "k", o.Load); !errors.Is(err, ErrNotFound) || !errors.Is(err, noRows) {
						t.Errorf("got %v", err)
					}
				})
			}
		}
		wg.Wait()
		wantLoads(t, o, 0)
		keys, err := s.Client(t).Keys(t.Context(), "*").Result()
		if len(keys) > 0 || err != nil {
			t.Errorf("left in Redis: %q, %v", keys, err)
		}
		want(t, "loads counted", caches[0].Stats().Loads, 0)
		if got := caches[0].Stats().RuledOut; got == 0 {
			t.Error("nothing was ruled out")
		}
		if v, err := caches[0].Get(t.Context(), "there", o.Load); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// What is no answer rules nothing out, and is told.
func TestAGuardThatFailsRulesNothingOut(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		broken := errors.New("broken")
		for name, may := range map[string]func(context.Context, []string) ([]bool, error){
			"error":  func(context.Context, []string) ([]bool, error) { return []bool{false}, broken },
			"panic":  func(context.Context, []string) ([]bool, error) { panic(broken) },
			"goexit": func(context.Context, []string) ([]bool, error) { runtime.Goexit(); return nil, nil },
			"none":   func(context.Context, []string) ([]bool, error) { return nil, nil },
			"more":   func(context.Context, []string) ([]bool, error) { return []bool{false, false}, nil },
		} {
			var told atomic.Pointer[GuardEvent]
			c := open[string](t, s.Client(t), guarded(&guard{may: may}), func(o *Options) {
				o.Observer.Guard = func(e GuardEvent) { told.Store(&e) }
			})
			o := returns("v")
			if v, err := c.Get(t.Context(), name, o.Load); v != "v" || err != nil {
				t.Errorf("%s: got %q, %v", name, v, err)
			}
			wantLoads(t, o, 1)
			want(t, name+": errors", c.Stats().GuardErrors, 1)
			if e := told.Load(); e == nil || e.Keys[0] != name || e.Err == nil || (name == "error" || name == "panic") && !errors.Is(e.Err, broken) {
				t.Errorf("%s: told %+v", name, e)
			}
			_ = c.Close()
		}
	})
}

// A Guard that hangs costs one load RedisTimeout, is not asked again meanwhile, and is asked again when it has answered.
func TestAGuardThatHangs(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		finish := make(chan struct{})
		g := &guard{may: func(context.Context, []string) ([]bool, error) { <-finish; return []bool{false}, nil }}
		c := open[string](t, s.Client(t), guarded(g))
		o := returns("v")
		begun := time.Now()
		for _, key := range []string{"a", "b", "c"} {
			if v, err := c.Get(t.Context(), key, o.Load); v != "v" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		}
		if took := time.Since(begun); took < 250*time.Millisecond || took > 450*time.Millisecond {
			t.Errorf("three loads took %v", took)
		}
		want(t, "asked while it hangs", g.asked.Load(), 1)
		close(finish)
		redistest.Eventually(t, 5*time.Second, "it has answered", func() bool { return c.view.overdue.Load() == 0 })
		if _, err := c.Get(t.Context(), "d", o.Load); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

// The question belongs to the load: no caller's end cancels it, LoadTimeout and Close do, and no loader runs after that.
func TestTheGuardHasTheContextOfTheLoad(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		asked, ended := make(chan struct{}, 1), make(chan error, 1)
		g := &guard{may: func(ctx context.Context, _ []string) ([]bool, error) {
			asked <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, ctx.Err()
		}}
		slow := func(o *Options) { o.RedisTimeout, o.LeaseTTL = 2*time.Second, 8*time.Second }
		o := returns("v")

		c := open[string](t, s.Client(t), guarded(g), slow, func(o *Options) { o.LoadTimeout = 300 * time.Millisecond })
		caller, leave := context.WithCancel(t.Context())
		begun := time.Now()
		go func() { <-asked; leave() }()
		if _, err := c.Get(caller, "k", o.Load); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left: got %v", err)
		}
		if err := <-ended; !errors.Is(err, ErrLoadTimeout) || time.Since(begun) < 300*time.Millisecond {
			t.Errorf("ended by %v after %v", err, time.Since(begun))
		}

		c = open[string](t, s.Client(t), guarded(g), slow)
		go func() { <-asked; _ = c.Close() }()
		if _, err := c.Get(t.Context(), "other", o.Load); !errors.Is(err, ErrClosed) {
			t.Errorf("Close: got %v", err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("ended by %v", err)
		}
		_ = c.Close()
		wantLoads(t, o, 0)
		want(t, "errors", c.Stats().GuardErrors, 0)
	})
}

// I1: "cannot exist" is no answer to a read that began after the key was added and invalidated.
func TestInvalidateBeatsTheGuardInFlight(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		asked, answer := make(chan struct{}), make(chan struct{})
		var exists atomic.Bool
		g := &guard{}
		g.may = func(context.Context, []string) ([]bool, error) {
			may := exists.Load()
			if !may {
				close(asked)
				<-answer
			}
			return []bool{may}, nil
		}
		caches := openAll(t, 2, func() redis.UniversalClient { return s.Client(t) }, guarded(g), func(o *Options) {
			o.RedisTimeout, o.LeaseTTL = 2*time.Second, 8*time.Second
		})
		early := make(chan error)
		go func() { _, err := caches[0].Get(t.Context(), "k", returns("v").Load); early <- err }()
		<-asked
		exists.Store(true)
		if err := caches[1].Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 { // one of them joins the flight in the air
			wg.Go(func() {
				if v, err := caches[0].Get(t.Context(), "k", returns("v").Load); v != "v" || err != nil {
					t.Errorf("after Invalidate: got %q, %v", v, err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		close(answer)
		wg.Wait()
		if err := <-early; !errors.Is(err, ErrNotFound) {
			t.Errorf("before: got %v", err)
		}
		if v, err := caches[1].Get(t.Context(), "k", returns("new").Load); v != "v" || err != nil {
			t.Errorf("stored: got %q, %v", v, err)
		}
	})
}

// A local load asks too, and what the Guard rules out is not remembered in the process.
func TestTheGuardIsAskedBeforeLocalLoads(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		faults := redistest.NewFaults(t)
		faults.Refuse(1000, redistest.Any, io.EOF)
		defer faults.Clear()
		down := s.Client(t)
		down.AddHook(faults)
		g := says(false)
		c := open[string](t, down, guarded(g))
		o := returns("v")
		for i := range int64(3) {
			if _, err := c.Get(t.Context(), "k", o.Load); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v", err)
			}
			want(t, "asked", g.asked.Load(), i+1)
		}
		wantLoads(t, o, 0)
		g.may = says(true).may
		if v, err := c.Get(t.Context(), "k", o.Load); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// What a Guard says of its failure can be read.
func TestGuardErrors(t *testing.T) {
	_, err := askGuard(t.Context(), says(true), []string{"a", "b"})
	if err == nil || !strings.Contains(err.Error(), "1 answers for 2 keys") {
		t.Errorf("got %v", err)
	}
}
