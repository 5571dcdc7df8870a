package stockade

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// tracer has a Trace that keeps what it is told of.
type tracer struct {
	mu    sync.Mutex
	spans []*recorded // guarded by mu: by their begin
}

type recorded struct {
	SpanBegin
	parent *recorded
	ends   []SpanEnd // guarded by tracer.mu
}

type recordedKey struct{}

func spanOf(ctx context.Context) *recorded {
	s, _ := ctx.Value(recordedKey{}).(*recorded)
	return s
}

func (r *tracer) trace(ctx context.Context, b SpanBegin) (context.Context, func(SpanEnd)) {
	s := &recorded{SpanBegin: b, parent: spanOf(ctx)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
	return context.WithValue(ctx, recordedKey{}, s), func(e SpanEnd) {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.ends = append(s.ends, e)
	}
}

func (r *tracer) traced(o *Options) { o.Observer.Trace = r.trace }

// tree is what was told of, with what is inside each span.
func (r *tracer) tree() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.below(nil)
}

// below is what is inside a span, by its kind: who is first may be chance.
func (r *tracer) below(parent *recorded) string {
	var list []string
	for _, s := range slices.SortedStableFunc(slices.Values(r.spans), func(a, b *recorded) int { return cmp.Compare(a.Span, b.Span) }) {
		if s.parent != parent {
			continue
		}
		text := fmt.Sprintf("%v %s", s.Span, strings.Join(s.Keys, "+"))
		if inside := r.below(s); inside != "" {
			text += "(" + inside + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// end is how the only span of a kind ended.
func (r *tracer) end(t testing.TB, span Span) SpanEnd {
	t.Helper()
	_, end := r.the(t, span)
	return end
}

func (r *tracer) the(t testing.TB, span Span) (*recorded, SpanEnd) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found *recorded
	for _, s := range r.spans {
		if s.Span != span {
			continue
		}
		if found != nil {
			t.Fatalf("more than one %v", span)
		}
		found = s
	}
	if found == nil || len(found.ends) != 1 {
		t.Fatalf("%v: got %+v, want one that has ended once", span, found)
	}
	return found, found.ends[0]
}

// wantEnded checks that every span has ended, once.
func (r *tracer) wantEnded(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if len(s.ends) != 1 {
			t.Errorf("%v %v has ended %d times", s.Span, s.Keys, len(s.ends))
		}
	}
}

type callerKey struct{}

func TestTraceOfAMiss(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		c := open[string](t, s.Client(t), r.traced)
		ctx := context.WithValue(t.Context(), callerKey{}, "caller")
		begun := time.Now()
		var inside *recorded
		get := func() (string, error) {
			return c.Get(ctx, "a", func(ctx context.Context) (string, error) {
				inside = spanOf(ctx)
				want(t, "the caller's value", ctx.Value(callerKey{}), any("caller"))
				if _, ok := ctx.Deadline(); !ok {
					t.Error("the loader's context has no deadline")
				}
				time.Sleep(time.Second)
				return "v", nil
			})
		}
		if v, err := get(); v != "v" || err != nil {
			t.Fatal(v, err)
		}
		want(t, "tree", r.tree(), "miss a(load a, commit a)")
		r.wantEnded(t)
		load, end := r.the(t, SpanLoad)
		want(t, "span that the loader runs in", inside, load)
		want(t, "stamp", len(end.Stamps[0]), 16)
		want(t, "error", end.Err, nil)
		miss, end := r.the(t, SpanMiss)
		want(t, "source", end.Source, Loaded)
		want(t, "begin of the miss", miss.Time, begun)
		want(t, "outcome", r.end(t, SpanCommit).Outcomes[0], Stored)
		if v, err := get(); v != "v" || err != nil {
			t.Fatal(v, err)
		}
		want(t, "tree after a hit", r.tree(), "miss a(load a, commit a)")
	})
}

// A wait and the load that it waits for have one stamp; who joins the wait shares the first one's span.
func TestTraceOfAWait(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var holding, waiting tracer
		holder, waiter := open[string](t, s.Client(t), holding.traced), open[string](t, s.Client(t), waiting.traced)
		var calls sync.WaitGroup
		get := func(c *Cache[string]) {
			calls.Go(func() {
				_, err := c.Get(t.Context(), "a", func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil })
				want(t, "error", err, nil)
			})
			synctest.Wait()
		}
		get(holder)
		get(waiter)
		get(waiter)
		calls.Wait()
		want(t, "tree of the holder", holding.tree(), "miss a(load a, commit a)")
		want(t, "tree of the waiter", waiting.tree(), "miss a(wait a), miss a")
		waiting.wantEnded(t)
		want(t, "stamp", waiting.end(t, SpanWait).Stamps[0], holding.end(t, SpanLoad).Stamps[0])
		first, second := waiting.spans[0], waiting.spans[2]
		want(t, "source", first.ends[0].Source, Remote)
		want(t, "shared by the first", len(first.ends[0].Shared), 0)
		want(t, "shared by the second", len(second.ends[0].Shared), 1)
		want(t, "span of the second's flight", spanOf(second.ends[0].Shared[0]), first)
	})
}

// A wait that ends with a grant has ended before the load begins, as a span and as an event, for one key and for many.
func TestAWaitEndsBeforeTheLoad(t *testing.T) {
	for name, c := range map[string]struct{ many, down bool }{
		"one": {}, "many": {many: true}, "one, when Redis fails": {down: true}, "many, when Redis fails": {many: true, down: true},
	} {
		t.Run(name, func(t *testing.T) {
			many, down := c.many, c.down
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				var r tracer
				var told []WaitEvent
				c := open[string](t, s.Client(t), r.traced, func(o *Options) { o.Observer.Wait = func(e WaitEvent) { told = append(told, e) } })
				crash(t, s, c, "a", time.Second)
				load := func(ctx context.Context) (string, error) {
					want(t, "waits told of when the load runs", len(told), 1)
					want(t, "ends of the wait", len(r.spans[1].ends), 1)
					time.Sleep(5 * time.Second)
					return "v", nil
				}
				tree := "miss a(load a, wait a, commit a)"
				if down {
					time.AfterFunc(time.Second/2, func() { s.Mini.SetError("LOADING") })
					tree = "miss a(load a, wait a)"
				}
				if many {
					_, err := c.GetMany(t.Context(), []string{"a"}, func(ctx context.Context, _ []string) (map[string]string, error) {
						v, err := load(ctx)
						return map[string]string{"a": v}, err
					})
					want(t, "error", err, nil)
				} else {
					_, err := c.Get(t.Context(), "a", load)
					want(t, "error", err, nil)
				}
				want(t, "tree", r.tree(), tree)
				r.wantEnded(t)
				want(t, "events", len(told), 1)
				if took := told[0].Took; took < time.Second/2 || took > 2*time.Second {
					t.Errorf("the wait took %v", took)
				}
			})
		})
	}
}

func TestTraceOfALoadThatFails(t *testing.T) {
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		load func(context.Context) (string, error)
		want error
	}{
		"error":     {func(context.Context) (string, error) { return "", failure }, failure},
		"panic":     {func(context.Context) (string, error) { panic(failure) }, failure},
		"Goexit":    {func(context.Context) (string, error) { runtime.Goexit(); return "", nil }, new(PanicError)},
		"absent":    {func(context.Context) (string, error) { return "", sql.ErrNoRows }, ErrNotFound},
		"cancelled": {func(context.Context) (string, error) { return "", context.Canceled }, context.Canceled},
		"time-out":  {func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, ErrLoadTimeout},
		"deaf":      {func(context.Context) (string, error) { time.Sleep(time.Hour); return "", nil }, ErrLoadTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				var r tracer
				cache := open[string](t, s.Client(t), r.traced, func(o *Options) { o.NotFound = sql.ErrNoRows })
				_, err := cache.Get(t.Context(), "a", c.load)
				want(t, "tree", r.tree(), "miss a(load a, commit a)")
				r.wantEnded(t)
				want(t, "error of the miss", r.end(t, SpanMiss).Err, err)
				got := r.end(t, SpanLoad).Err
				if _, ok := c.want.(*PanicError); ok {
					var panicked *PanicError
					want(t, "panic", errors.As(got, &panicked) && panicked.Value == "runtime.Goexit", true)
				} else if !errors.Is(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestTraceOfARefresh(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint("many=", many), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				var r tracer
				c := open[string](t, s.Client(t), r.traced, func(o *Options) { o.TTL, o.StaleFor = time.Second, time.Hour })
				want(t, "error", c.Set(t.Context(), "a", "old"), nil)
				time.Sleep(2 * time.Second)
				read := &recorded{}
				ctx := context.WithValue(t.Context(), recordedKey{}, read)
				var inside *recorded
				if many {
					_, err := c.GetMany(ctx, []string{"a"}, func(ctx context.Context, _ []string) (map[string]string, error) {
						inside = spanOf(ctx)
						return map[string]string{"a": "new"}, nil
					})
					want(t, "error", err, nil)
				} else {
					_, err := c.Get(ctx, "a", func(ctx context.Context) (string, error) { inside = spanOf(ctx); return "new", nil })
					want(t, "error", err, nil)
				}
				synctest.Wait()
				refresh, end := r.the(t, SpanRefresh)
				want(t, "context of the refresh", refresh.parent, read)
				want(t, "skipped", end.Skipped, false)
				load, _ := r.the(t, SpanLoad)
				want(t, "span of the load", load.parent, refresh)
				want(t, "span that the loader runs in", inside, load)
				commit, end := r.the(t, SpanCommit)
				want(t, "span of the commit", commit.parent, refresh)
				want(t, "outcome", end.Outcomes[0], Stored)
				want(t, "spans", len(r.spans), 3)
			})
		})
	}
}

// A refresh that meets another process's lease is a span that was skipped.
func TestTraceOfASkippedRefresh(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var r tracer
		rdb := s.Client(t)
		c := open[string](t, rdb, r.traced, func(o *Options) { o.TTL, o.StaleFor = time.Second, time.Hour })
		want(t, "error", c.Set(t.Context(), "a", "old"), nil)
		value, err := rdb.Get(t.Context(), "test:K:v:{a}").Result()
		want(t, "error", err, nil)
		head := headOf(value)
		crashAt(t, s, c, "a", &head)
		time.Sleep(2 * time.Second)
		_, err = c.Get(t.Context(), "a", returns("new").Load)
		want(t, "error", err, nil)
		synctest.Wait()
		want(t, "tree", r.tree(), "refresh a")
		want(t, "skipped", r.end(t, SpanRefresh).Skipped, true)
	})
}

// A batch is one load. Keys that others load are one wait, with the stamps of theirs.
func TestTraceOfABatch(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var holding, r tracer
		holder, c := open[string](t, s.Client(t), holding.traced), open[string](t, s.Client(t), r.traced)
		want(t, "error", c.Set(t.Context(), "hit", "v of hit"), nil)
		finish := make(chan struct{})
		slow := table{before: func(context.Context, []string) error { <-finish; return nil }}
		var calls sync.WaitGroup
		calls.Go(func() {
			_, err := holder.GetMany(t.Context(), []string{"x", "y"}, slow.load)
			want(t, "error", err, nil)
		})
		synctest.Wait()
		var o table
		for range 2 {
			calls.Go(func() {
				got, err := c.GetMany(t.Context(), []string{"a", "b", "hit", "x", "y"}, o.load)
				wantValues(t, got, err, "a", "b", "hit", "x", "y")
			})
			synctest.Wait()
		}
		close(finish)
		calls.Wait()
		want(t, "tree of the holder", holding.tree(), "miss x+y(load x+y, commit x+y)")
		want(t, "tree", r.tree(), "miss a+b+x+y(load a+b, wait x+y, commit a+b), miss x+y")
		r.wantEnded(t)
		want(t, "stamps", fmt.Sprint(r.end(t, SpanWait).Stamps), fmt.Sprint(holding.end(t, SpanLoad).Stamps))
		want(t, "stamps of the load", len(r.end(t, SpanLoad).Stamps), 2)
		want(t, "outcomes", fmt.Sprint(r.end(t, SpanCommit).Outcomes), "[stored stored]")
		second := r.spans[len(r.spans)-1]
		want(t, "shared", len(second.ends[0].Shared), 2)
		want(t, "span of the flights", spanOf(second.ends[0].Shared[0]), r.spans[0])
	})
}

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
