package stockade

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Reads are told of when that is asked for, whatever comes of them.
func TestTraceReads(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		c := open[string](t, s.Client(t), r.traced, func(o *Options) { o.Observer.TraceReads, o.Local.Entries = true, 10 })
		load := returns("v")
		read := func(what string, call func() error, tree string) SpanEnd {
			t.Helper()
			r.spans = nil
			err := call()
			want(t, what, r.tree(), tree)
			r.wantEnded(t)
			if end := r.end(t, SpanRead); end.Err != err {
				t.Errorf("%s: told of %v, got %v", what, end.Err, err)
			}
			return r.end(t, SpanRead)
		}
		get := func() error { _, err := c.Get(t.Context(), "a", load.Load); return err }
		entry := func(ctx context.Context, _ *Entry[string]) (Entry[string], error) {
			v, err := load.Load(ctx)
			return Entry[string]{Value: v}, err
		}
		lookup := func() error { _, err := c.Lookup(t.Context(), "a"); return err }
		want(t, "lookup", read("lookup", lookup, "read a").Err, ErrMiss)
		want(t, "miss", read("miss", get, "read a(miss a(load a, commit a))").Source, Loaded)
		want(t, "hit", read("hit", get, "read a").Source, Local)
		want(t, "fetch", read("fetch", func() error { _, err := c.Fetch(t.Context(), "a", entry); return err }, "read a").Source, Local)
		var o table
		many := func() error { _, err := c.GetMany(t.Context(), []string{"b", "a", "a"}, o.load); return err }
		read("many", many, "read b+a(miss b(load b, commit b))")
		want(t, "batch", r.spans[0].Batch, true)
		seen, err := c.Lookup(t.Context(), "a")
		want(t, "error", err, nil)
		renew := func() error { _, err := c.Renew(t.Context(), "a", seen, entry); return err }
		want(t, "renew", read("renew", renew, "read a(miss a(load a, commit a))").Source, Loaded)
	})
}

// A Trace that does not do what it should leaves the cache as it is without, and the callers' own ends are kept.
func TestABrokenTrace(t *testing.T) {
	for name, trace := range map[string]func(context.Context, SpanBegin) (context.Context, func(SpanEnd)){
		"panics": func(context.Context, SpanBegin) (context.Context, func(SpanEnd)) { panic("trace") },
		"nil":    func(context.Context, SpanBegin) (context.Context, func(SpanEnd)) { return nil, nil },
		"end panics": func(ctx context.Context, _ SpanBegin) (context.Context, func(SpanEnd)) {
			return ctx, func(SpanEnd) { panic("end") }
		},
		"other context": func(context.Context, SpanBegin) (context.Context, func(SpanEnd)) { return context.Background(), nil },
		"ended context": func(ctx context.Context, _ SpanBegin) (context.Context, func(SpanEnd)) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				c := open[string](t, s.Client(t), func(o *Options) { o.Observer.Trace, o.Observer.TraceReads = trace, true })
				v, err := c.Get(t.Context(), "a", func(ctx context.Context) (string, error) { return "v", ctx.Err() })
				if v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
				var none context.Context
				if _, err := c.Get(none, "a", returns("v").Load); err == nil {
					t.Error("a nil context is accepted")
				}
				var o table
				got, err := c.GetMany(t.Context(), []string{"b", "c"}, o.load)
				wantValues(t, got, err, "b", "c")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				_, err = c.Get(ctx, "slow", func(context.Context) (string, error) { time.Sleep(time.Minute); return "", nil })
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
					t.Errorf("after %v: got %v", time.Since(begun), err)
				}
				l := openLocker(t, s, Observer{Trace: trace})
				k, err := l.Lock(t.Context(), "a")
				if err != nil || k.Context().Err() != nil {
					t.Fatalf("got %v, %v", err, k)
				}
				want(t, "unlock", k.Unlock(t.Context()), nil)
				want(t, "context", errors.Is(k.Context().Err(), context.Canceled), true)
			})
		})
	}
}

func openLocker(t testing.TB, s redistest.Server, o Observer) *Locker {
	t.Helper()
	l, err := NewLocker(s.Client(t), LockOptions{Prefix: "test", Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Steps end whoever leaves: callers, the cache, Redis.
func TestTraceIsEndedWhoeverLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		c := open[string](t, s.Client(t), r.traced, func(o *Options) { o.TTL, o.StaleFor = time.Second, time.Hour })
		held := open[string](t, s.Client(t))
		slow := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		slowMany := func(ctx context.Context, _ []string) (map[string]string, error) { <-ctx.Done(); return nil, ctx.Err() }
		want(t, "error", c.Set(t.Context(), "stale", "old"), nil)
		time.Sleep(2 * time.Second)
		var calls sync.WaitGroup
		leaving, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{leaving, t.Context()} {
			calls.Go(func() { _, _ = held.Get(ctx, "held", slow) })
			synctest.Wait()
			calls.Go(func() { _, _ = c.Get(ctx, "a", slow) })
			calls.Go(func() { _, _ = c.Get(ctx, "held", slow) })
			calls.Go(func() { _, _ = c.Get(ctx, "stale", slow) })
			calls.Go(func() { _, _ = c.GetMany(ctx, []string{"a", "b", "held", "held too"}, slowMany) })
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		want(t, "error", c.Close(), nil)
		calls.Wait()
		if len(r.spans) < 10 {
			t.Errorf("only %s", r.tree())
		}
		r.wantEnded(t)
		for _, s := range r.spans {
			if s.Span == SpanLoad && !errors.Is(s.ends[0].Err, ErrClosed) {
				t.Errorf("load of %v: %v", s.Keys, s.ends[0].Err)
			}
		}
	})
}

// When a call returns, all that it has waited for has ended, however long the ends take to be told.
func TestTraceEndsBeforeTheCall(t *testing.T) {
	for name, end := range map[string]error{"value": nil, "failure": errSource} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				load := func(context.Context) (string, error) { time.Sleep(10 * time.Second); return "v", end }
				loadMany := func(context.Context, []string) (map[string]string, error) {
					time.Sleep(10 * time.Second)
					return map[string]string{"c": "v"}, end
				}
				var calls sync.WaitGroup
				for range 2 { // the first loads, the second waits for it
					var r [2]tracer
					call := func(r *tracer, read func(c *Cache[string]) error) {
						c := open[string](t, s.Client(t), func(o *Options) {
							o.Observer.Trace = func(ctx context.Context, b SpanBegin) (context.Context, func(SpanEnd)) {
								ctx, done := r.trace(ctx, b)
								return ctx, func(e SpanEnd) {
									if b.Span != SpanMiss { // which is the call
										time.Sleep(time.Second)
									}
									done(e)
								}
							}
						})
						calls.Go(func() {
							want(t, "failed", read(c) != nil, end != nil)
							r.wantEnded(t)
							want(t, "spans", len(r.spans) > 1, true)
						})
					}
					call(&r[0], func(c *Cache[string]) error { _, err := c.Get(t.Context(), "a", load); return err })
					call(&r[1], func(c *Cache[string]) error {
						_, err := c.GetMany(t.Context(), []string{"b", "c"}, loadMany)
						return err
					})
					synctest.Wait()
				}
				calls.Wait()
			})
		})
	}
}

// A load without a lease is a span without a stamp.
func TestTraceWithoutRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		rdb := s.Client(t)
		c := open[string](t, rdb, r.traced)
		s.Mini.SetError("LOADING")
		var inside *recorded
		_, err := c.Get(t.Context(), "a", func(ctx context.Context) (string, error) { inside = spanOf(ctx); return "v", nil })
		want(t, "error", err, nil)
		want(t, "span that the loader runs in", inside, r.spans[1])
		var o table
		got, err := c.GetMany(t.Context(), []string{"b", "c"}, o.load)
		wantValues(t, got, err, "b", "c")
		want(t, "tree", r.tree(), "miss a(load a), miss b+c(load b+c)")
		r.wantEnded(t)
		want(t, "stamp", r.spans[1].ends[0].Stamps[0], "")
	})
}

// What the Guard rules out is said of the load that it kept from running.
func TestTraceOfAGuard(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		c := open[string](t, s.Client(t), r.traced, func(o *Options) { o.Guard = rulesOutAll{} })
		_, err := c.Get(t.Context(), "a", returns("v").Load)
		want(t, "error", errors.Is(err, ErrNotFound), true)
		want(t, "ruled out", r.end(t, SpanLoad).RuledOut, 1)
		r.spans = nil
		var o table
		_, err = c.GetMany(t.Context(), []string{"b", "c"}, o.load)
		want(t, "error", err, nil)
		want(t, "ruled out", r.end(t, SpanLoad).RuledOut, 2)
		want(t, "loads", o.loads(), "[]")
	})
}

type rulesOutAll struct{}

func (rulesOutAll) MayExist(_ context.Context, keys []string) ([]bool, error) {
	return make([]bool, len(keys)), nil
}

func TestTraceOfLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		a, b := openLocker(t, s, Observer{Trace: r.trace}), openLocker(t, s, Observer{Trace: r.trace})
		k, err := a.Lock(t.Context(), "x")
		want(t, "error", err, nil)
		hold := r.spans[0]
		want(t, "span of the lock's context", spanOf(k.Context()), hold)
		_, err = b.TryLock(t.Context(), "x")
		want(t, "error", err, ErrLocked)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var inside *recorded
		done := make(chan struct{})
		do := func() {
			go func() {
				defer func() { done <- struct{}{} }()
				_ = b.Do(t.Context(), "x", func(ctx context.Context, _ int64) error { inside = spanOf(ctx); return nil })
			}()
			synctest.Wait()
		}
		do()
		_, err = b.Lock(ctx, "x") // waits in this process, for its turn
		want(t, "error", errors.Is(err, ErrLocked), true)
		want(t, "tree", r.tree(), "lock wait x, lock wait x, lock hold x")
		want(t, "error of the wait", r.spans[2].ends[0].Err, err)
		want(t, "ends", len(hold.ends), 0)
		do()
		want(t, "unlock", k.Unlock(t.Context()), nil)
		<-done
		<-done
		synctest.Wait()
		want(t, "tree", r.tree(), "lock wait x, lock wait x, lock wait x, lock hold x, lock hold x, lock hold x")
		want(t, "span that the function runs in", inside, r.spans[5])
		r.wantEnded(t)
		want(t, "error of the hold", hold.ends[0].Err, nil)

		r.spans = nil
		lost, err := a.Lock(t.Context(), "y")
		want(t, "error", err, nil)
		s.Mini.FlushAll()
		<-lost.Context().Done()
		synctest.Wait()
		want(t, "error of a lost one", r.end(t, SpanLockHold).Err, ErrLockLost)

		r.spans = nil
		_, err = a.Lock(t.Context(), "z")
		want(t, "error", err, nil)
		want(t, "close", a.Close(), nil)
		r.wantEnded(t)
	})
}
