package stockade

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

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
