package stockade

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Only the values of a traced context count: whatever it descends from, calls end when and why their own does, and a loader
// that asks for its own key is told so.
func TestATraceGivesValuesOnly(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"background": func(context.Context) context.Context { return context.Background() },
		"endless":    context.WithoutCancel,
		"ended": func(ctx context.Context) context.Context {
			ctx, end := context.WithCancelCause(ctx)
			end(errors.New("the tracer's"))
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				o := Observer{TraceReads: true, Trace: func(ctx context.Context, b SpanBegin) (context.Context, func(SpanEnd)) {
					return context.WithValue(of(ctx), recordedKey{}, &recorded{SpanBegin: b}), nil
				}}
				c := open[string](t, s.Client(t), func(opts *Options) { opts.Observer, opts.MaxLoads = o, 1 })
				why := errors.New("why")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
				defer cancel()
				_, err := c.Get(ctx, "slow", func(ctx context.Context) (string, error) {
					want(t, "span that the loader runs in", spanOf(ctx).Span, SpanLoad)
					time.Sleep(2 * time.Second)
					return "v", nil
				})
				want(t, "the caller's error is its cause", errors.Is(err, why), true)

				time.Sleep(2 * time.Second)
				var inner error
				_, err = c.Get(t.Context(), "a", func(ctx context.Context) (string, error) {
					return c.Get(ctx, "b", func(ctx context.Context) (string, error) {
						_, inner = c.Get(ctx, "a", func(context.Context) (string, error) { return "v", nil })
						return "v", nil
					})
				})
				want(t, "error", err, nil)
				want(t, "error of the innermost", inner, ErrReentrant)

				lost, err := openLocker(t, s, o).Lock(t.Context(), "x")
				want(t, "error", err, nil)
				want(t, "span of the lock's context", spanOf(lost.Context()).Span, SpanLockHold)
				s.Mini.FlushAll()
				derived, cancel := context.WithCancel(lost.Context())
				defer cancel()
				<-derived.Done()
				want(t, "cause", context.Cause(lost.Context()), ErrLockLost)
				want(t, "cause of what descends from it", context.Cause(derived), ErrLockLost)
			})
		})
	}
}

// A lock that expires while the Observer is told that it was taken is lost after that, and its span ends.
func TestALockThatIsLostAsItIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		var told []LockKind
		l := openLocker(t, s, Observer{
			Lock: func(e LockEvent) { told = append(told, e.Kind) },
			Trace: func(ctx context.Context, b SpanBegin) (context.Context, func(SpanEnd)) {
				time.Sleep(time.Minute)
				_ = ctx.Err()
				return r.trace(ctx, b)
			},
		})
		k, err := l.Lock(t.Context(), "x")
		want(t, "error", err, nil)
		<-k.Context().Done()
		want(t, "cause", context.Cause(k.Context()), ErrLockLost)
		want(t, "unlock", k.Unlock(t.Context()), ErrLockLost)
		if len(told) != 2 || told[0] != LockTaken || told[1] != LockLost {
			t.Errorf("told %v, want taken, lost", told)
		}
		want(t, "error of the hold", r.end(t, SpanLockHold).Err, ErrLockLost)
	})
}

// A wait that Redis or a lack of places has ended did not end well.
func TestHowAWaitEnds(t *testing.T) {
	load := func(context.Context) (string, error) { return "v", nil }
	slow := func(context.Context) (string, error) { time.Sleep(20 * time.Second); return "v", nil } // keeps its place
	down := func(s *redistest.FakeServer, _ *Cache[string]) { s.Mini.SetError("LOADING down") }
	full := func(_ *redistest.FakeServer, c *Cache[string]) {
		go func() { _, _ = c.Get(context.Background(), "full", slow) }()
	}
	for _, test := range []struct {
		name  string
		batch bool
		event func(*redistest.FakeServer, *Cache[string])
		err   error
	}{
		{"Get, Redis fails", false, down, ErrRedis},
		{"GetMany, Redis fails", true, down, ErrRedis},
		{"Get, no place", false, full, ErrOverloaded},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				var r tracer
				var told []WaitEvent
				holder := open[string](t, s.Client(t))
				c := open[string](t, s.Client(t), r.traced, func(o *Options) {
					o.Observer.Wait = func(e WaitEvent) { told = append(told, e) }
					o.WhenRedisFails, o.MaxLoads, o.LoadTimeout = ReturnError, 1, 5*time.Second
				})
				go func() { _, _ = holder.Get(t.Context(), "held", slow) }()
				synctest.Wait()
				time.AfterFunc(time.Second, func() { test.event(s, c) })
				var err error
				if test.batch {
					_, err = c.GetMany(t.Context(), []string{"held"}, func(context.Context, []string) (map[string]string, error) { return nil, nil })
				} else {
					_, err = c.Get(t.Context(), "held", load)
				}
				want(t, "error is the reason", errors.Is(err, test.err), true)
				if len(told) != 1 || !errors.Is(told[0].Err, test.err) {
					t.Errorf("told %v, want one of %v", told, test.err)
				}
				want(t, "the span ended so", errors.Is(r.end(t, SpanWait).Err, test.err), true)
			})
		})
	}
}

// A refresh of which nothing came keeps the next from beginning for FailureBackoff, and not its caller's context.
func TestARefreshLetsGoOfItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		c := open[string](t, s.Client(t), r.traced, func(o *Options) { o.TTL, o.StaleFor, o.FailureBackoff = time.Second, time.Hour, time.Minute })
		for _, key := range []string{"one", "many"} {
			want(t, "error", c.Set(t.Context(), key, "old"), nil)
		}
		time.Sleep(2 * time.Second)
		_, _ = c.Get(t.Context(), "one", func(context.Context) (string, error) { return "", context.Canceled })
		_, _ = c.GetMany(t.Context(), []string{"many"}, func(context.Context, []string) (map[string]string, error) { return nil, context.Canceled })
		synctest.Wait()
		r.wantEnded(t)
		for _, key := range []string{"one", "many"} {
			f := c.view.refreshing.get(key)
			if f == nil {
				t.Fatalf("the refresh of %s does not pause", key)
			}
			if f.caller != nil || f.load.loader != nil || f.saw.there {
				t.Errorf("the refresh of %s still has its caller's context, loader or value", key)
			}
		}
	})
}
