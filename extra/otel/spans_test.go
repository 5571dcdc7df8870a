package otel

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// Two processes read a key at once: the wait of the one leads to the load of the other by the stamp of its lease.
func TestAWaitLeadsToTheLoad(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		holder, waiter := newProcess(t), newProcess(t)
		var calls sync.WaitGroup
		var inside trace.SpanContext
		read := func(p *process, c *stockade.Cache[string]) {
			calls.Go(func() {
				ctx, span := p.tracer.Start(t.Context(), "handler")
				defer span.End()
				_, err := c.Get(ctx, "k", func(ctx context.Context) (string, error) {
					inside = trace.SpanContextFromContext(ctx)
					time.Sleep(time.Second)
					return "v", nil
				})
				want(t, "error", err, nil)
			})
			synctest.Wait()
		}
		read(holder, holder.cache(t, s))
		other := waiter.cache(t, s)
		read(waiter, other)
		read(waiter, other)
		calls.Wait()
		holder.wantEnded(t, 4)
		waiter.wantEnded(t, 5)

		miss, load := holder.the(t, "stockade.read"), holder.the(t, "stockade.load")
		wantInside(t, miss, holder.the(t, "handler"))
		wantInside(t, load, miss)
		wantInside(t, holder.the(t, "stockade.commit"), miss)
		want(t, "span that the loader runs in", inside.SpanID(), load.SpanContext().SpanID())
		want(t, "duration", load.EndTime().Sub(load.StartTime()), time.Second)
		wantOutcome(t, miss, "loaded")
		wantOutcome(t, load, "ok")
		wantOutcome(t, holder.the(t, "stockade.commit"), "stored")

		wait := waiter.the(t, "stockade.wait")
		stamp := valueOf(wait, "stockade.lease.stamp").AsString()
		want(t, "length of the stamp", len(stamp), 16)
		want(t, "stamp", stamp, valueOf(load, "stockade.lease.stamp").AsString())
		reads := waiter.named("stockade.read")
		want(t, "reads", len(reads), 2)
		first, second := reads[0], reads[1] // the one that waits, and the one that joins it
		if len(first.Links()) > 0 {
			first, second = second, first
		}
		wantInside(t, wait, first)
		wantOutcome(t, first, "remote")
		want(t, "links of the second", len(second.Links()), 1)
		want(t, "link", second.Links()[0].SpanContext.SpanID(), first.SpanContext().SpanID())
		for _, s := range append(holder.spans.Ended(), waiter.spans.Ended()...) {
			if s.Name() != "handler" {
				want(t, "name", valueOf(s, "stockade.cache.name").AsString(), "users")
				want(t, "status", s.Status().Code, codes.Unset)
			}
		}
	})
}

func TestLoadsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		load          func(context.Context) (string, error)
		outcome, says string
	}{
		"failed":    {func(context.Context) (string, error) { return "", errSource }, "failed", "the source failed"},
		"panicked":  {func(context.Context) (string, error) { panic("ouch") }, "panicked", "panic: ouch"},
		"Goexit":    {func(context.Context) (string, error) { runtime.Goexit(); return "", nil }, "panicked", "panic: runtime.Goexit"},
		"timed_out": {func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, "timed_out", "stockade: load timed out"},
		"hangs":     {func(context.Context) (string, error) { time.Sleep(time.Hour); return "", nil }, "timed_out", "stockade: load timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				p := newProcess(t)
				cache := p.cache(t, s)
				if _, err := cache.Get(t.Context(), "k", c.load); err == nil {
					t.Fatal("no error")
				}
				p.wantEnded(t, 3)
				load := p.the(t, "stockade.load")
				wantOutcome(t, load, c.outcome)
				for _, name := range []string{"stockade.load", "stockade.read"} {
					status := p.the(t, name).Status()
					if status.Code != codes.Error || !strings.Contains(status.Description, c.says) {
						t.Errorf("status of %s: %+v", name, status)
					}
				}
				want(t, "events", len(load.Events()), 1)
				event := map[attribute.Key]string{}
				for _, a := range load.Events()[0].Attributes {
					event[a.Key] = a.Value.AsString()
				}
				want(t, "message", event["exception.message"], c.says)
				want(t, "has the stack", strings.Contains(event["exception.stacktrace"], "otel.TestLoadsThatFail"), c.outcome == "panicked")
				want(t, "events of the read", len(p.the(t, "stockade.read").Events()), 0)
				want(t, "count", p.points(t, "stockade.load.duration")[c.outcome], 1)
			})
		})
	}
}

// That a key does not exist is no failure.
func TestAbsentKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		p := newProcess(t)
		_, _ = p.cache(t, s).Get(t.Context(), "k", func(context.Context) (string, error) { return "", stockade.ErrNotFound })
		for _, name := range []string{"stockade.load", "stockade.read"} {
			wantOutcome(t, p.the(t, name), "absent")
			want(t, "status", p.the(t, name).Status().Code, codes.Unset)
			want(t, "events", len(p.the(t, name).Events()), 0)
		}
	})
}

// A refresh is a trace of its own, with a link to what was read. The load is inside it.
func TestRefreshes(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		p := newProcess(t)
		c := p.cache(t, s, func(o *stockade.Options) { o.TTL, o.StaleFor = time.Second, time.Hour })
		want(t, "error", c.Set(t.Context(), "k", "old"), nil)
		time.Sleep(2 * time.Second)
		ctx, handler := p.tracer.Start(t.Context(), "handler")
		_, err := c.Get(ctx, "k", func(context.Context) (string, error) { time.Sleep(10 * time.Second); return "", errSource })
		want(t, "error", err, nil)
		handler.End()
		time.Sleep(time.Hour)
		p.wantEnded(t, 4)
		refresh := p.the(t, "stockade.refresh")
		want(t, "is a root", refresh.Parent().IsValid(), false)
		want(t, "is a trace of its own", refresh.SpanContext().TraceID() != handler.SpanContext().TraceID(), true)
		want(t, "links", len(refresh.Links()), 1)
		want(t, "link", refresh.Links()[0].SpanContext.SpanID(), handler.SpanContext().SpanID())
		wantOutcome(t, refresh, "failed")
		want(t, "status", refresh.Status().Code, codes.Error)
		wantInside(t, p.the(t, "stockade.load"), refresh)
		wantInside(t, p.the(t, "stockade.commit"), refresh)
	})
}

func TestBatches(t *testing.T) {
	for _, keys := range []bool{false, true} {
		t.Run(fmt.Sprint("keys=", keys), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				withKeys := func(o *Options) { o.Keys = keys }
				holder, waiter := newProcess(t, withKeys), newProcess(t, withKeys)
				load := func(_ context.Context, keys []string) (map[string]string, error) {
					time.Sleep(time.Second)
					return nil, &stockade.KeysError{Errs: map[string]error{"secret1": errSource}}
				}
				var calls sync.WaitGroup
				for _, p := range []*process{holder, waiter} {
					c := p.cache(t, s)
					calls.Go(func() { _, _ = c.GetMany(t.Context(), []string{"secret1", "secret2"}, load) })
					synctest.Wait()
				}
				calls.Wait()
				holder.wantEnded(t, 3)
				waiter.wantEnded(t, 2)
				span := holder.the(t, "stockade.load")
				wantInside(t, span, holder.the(t, "stockade.read"))
				want(t, "keys", valueOf(span, "stockade.key.count").AsInt64(), 2)
				stamps := valueOf(span, "stockade.lease.stamps").AsStringSlice()
				want(t, "stamps", len(stamps), 2)
				want(t, "stamps of the wait", fmt.Sprint(valueOf(waiter.the(t, "stockade.wait"), "stockade.lease.stamps").AsStringSlice()), fmt.Sprint(stamps))
				listed := []string(nil)
				if keys {
					listed = []string{"secret1", "secret2"}
				}
				want(t, "listed", fmt.Sprint(valueOf(span, "stockade.keys").AsStringSlice()), fmt.Sprint(listed))
				want(t, "names a key", said(holder, "secret") || said(waiter, "secret"), keys)
				wantOutcome(t, span, "failed")
				wantOutcome(t, holder.the(t, "stockade.commit"), "stored")
				want(t, "loads that were measured", holder.points(t, "stockade.load.duration")["failed"], 1)
			})
		})
	}
}

// said reports whether any span has a text.
func said(p *process, text string) bool {
	return strings.Contains(fmt.Sprintf("%+v", tracetest.SpanStubsFromReadOnlySpans(p.spans.Ended())), text)
}

// Keys are on spans only when that is asked for.
func TestKeysAreNotTold(t *testing.T) {
	for _, keys := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
			p := newProcess(t, func(o *Options) { o.Keys, o.Reads = keys, All })
			c := p.cache(t, s)
			want(t, "watch", p.Watch(c), nil)
			_, _ = c.Get(t.Context(), "secret", func(ctx context.Context) (string, error) {
				_, err := c.GetMany(ctx, []string{"secret", "more"}, func(context.Context, []string) (map[string]string, error) { return nil, errSource })
				return "", err
			})
			l := p.locker(t, s)
			k, err := l.Lock(t.Context(), "secret")
			want(t, "error", err, nil)
			want(t, "error", k.Unlock(t.Context()), nil)
			p.wantEnded(t, 7)
			want(t, "told", said(p, "secret"), keys)
			if text := fmt.Sprintf("%+v", p.metrics(t)); strings.Contains(text, "secret") {
				t.Errorf("a metric has a key: %s", text)
			}
		})
	}
}

func TestReadsOfAllKinds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		p := newProcess(t, func(o *Options) { o.Reads = All })
		c := p.cache(t, s)
		load := func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil }
		_, _ = c.Lookup(t.Context(), "k")
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() { _, _ = c.Get(t.Context(), "k", load) })
			synctest.Wait()
		}
		calls.Wait()
		_, _ = c.Get(t.Context(), "k", load)
		var outcomes []string
		links := 0
		for _, s := range p.named("stockade.read") {
			outcomes = append(outcomes, valueOf(s, outcomeKey).AsString())
			links += len(s.Links())
		}
		want(t, "outcomes", len(outcomes), 4)
		for _, outcome := range []string{"miss", "loaded", "joined", "hit"} {
			if !strings.Contains(strings.Join(outcomes, " "), outcome) {
				t.Errorf("%v lacks %s", outcomes, outcome)
			}
		}
		want(t, "links", links, 1)
		p.wantEnded(t, 6)
		for _, s := range p.named("stockade.read") {
			want(t, "status of "+valueOf(s, outcomeKey).AsString(), s.Status().Code, codes.Unset)
		}
	})
}

// Spans end whoever leaves.
func TestNoSpanIsLeftOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		p, holder := newProcess(t, func(o *Options) { o.Reads = All }), newProcess(t)
		c, other := p.cache(t, s, func(o *stockade.Options) { o.TTL, o.StaleFor = time.Second, time.Hour }), holder.cache(t, s)
		slow := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		many := func(ctx context.Context, _ []string) (map[string]string, error) {
			<-ctx.Done()
			runtime.Goexit()
			return nil, nil
		}
		want(t, "error", c.Set(t.Context(), "stale", "old"), nil)
		time.Sleep(2 * time.Second)
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = other.Get(t.Context(), "held", slow) })
		synctest.Wait()
		leaving, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{leaving, t.Context()} {
			calls.Go(func() { _, _ = c.Get(ctx, "k", slow) })
			calls.Go(func() { _, _ = c.Get(ctx, "held", slow) })
			calls.Go(func() { _, _ = c.Get(ctx, "stale", slow) })
			calls.Go(func() { _, _ = c.GetMany(ctx, []string{"k", "held", "more"}, many) })
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		want(t, "close", c.Close(), nil)
		want(t, "close", other.Close(), nil)
		calls.Wait()
		p.wantEnded(t, 14)
		holder.wantEnded(t, 3)
		left := 0
		for _, s := range p.named("stockade.read") {
			if valueOf(s, outcomeKey).AsString() == "left" {
				left++
				want(t, "status", s.Status().Code, codes.Error)
			}
		}
		want(t, "callers that have left", left, 3)
	})
}

func (p *process) locker(t testing.TB, s redistest.Server) *stockade.Locker {
	t.Helper()
	l, err := stockade.NewLocker(s.Client(t), stockade.LockOptions{Prefix: "test", Observer: p.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		first, second := newProcess(t), newProcess(t)
		ctx, handler := first.tracer.Start(t.Context(), "handler")
		k, err := first.locker(t, s).Lock(ctx, "x")
		want(t, "error", err, nil)
		_, inside := first.tracer.Start(k.Context(), "work")
		inside.End()
		l := second.locker(t, s)
		done := make(chan error)
		go func() {
			done <- l.Do(t.Context(), "x", func(context.Context, int64) error { s.Mini.FlushAll(); time.Sleep(time.Minute); return nil })
		}()
		time.Sleep(5 * time.Second)
		want(t, "unlock", k.Unlock(ctx), nil)
		<-done
		handler.End()
		synctest.Wait()
		first.wantEnded(t, 3)
		second.wantEnded(t, 2)
		hold := first.the(t, "stockade.lock.hold")
		wantInside(t, hold, first.the(t, "handler"))
		wantInside(t, first.the(t, "work"), hold)
		want(t, "held", hold.EndTime().Sub(hold.StartTime()), 5*time.Second)
		wantOutcome(t, hold, "ok")
		wantOutcome(t, second.the(t, "stockade.lock.wait"), "ok")
		wantOutcome(t, second.the(t, "stockade.lock.hold"), "lost")
		want(t, "status", second.the(t, "stockade.lock.hold").Status().Code, codes.Error)
		want(t, "held", first.points(t, "stockade.lock.hold.duration")["ok"], 1)
		want(t, "lost", second.points(t, "stockade.lock.hold.duration")["lost"], 1)
		want(t, "waited", second.points(t, "stockade.lock.wait.duration")["ok"], 1)
	})
}

// What is not sampled leaves no span, and is measured all the same.
func TestNothingIsSampled(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		recorder := tracetest.NewSpanRecorder()
		p := newProcess(t, func(o *Options) {
			o.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()), sdk.WithSpanProcessor(recorder))
		})
		_, err := p.cache(t, s).Get(t.Context(), "k", func(context.Context) (string, error) { return "v", nil })
		want(t, "error", err, nil)
		want(t, "spans", len(recorder.Started()), 0)
		want(t, "loads that were measured", p.points(t, "stockade.load.duration")["ok"], 1)
	})
}

// A load that the Guard rules out is told from one that found nothing.
func TestRuledOutKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		p := newProcess(t)
		c := p.cache(t, s, func(o *stockade.Options) { o.Guard = nothing{} })
		_, _ = c.Get(t.Context(), "k", func(context.Context) (string, error) { return "v", nil })
		wantOutcome(t, p.the(t, "stockade.load"), "ruled_out")
		wantOutcome(t, p.the(t, "stockade.read"), "absent")
		want(t, "count", p.points(t, "stockade.load.duration")["ruled_out"], 1)
	})
}

type nothing struct{}

func (nothing) MayExist(_ context.Context, keys []string) ([]bool, error) {
	return make([]bool, len(keys)), nil
}

func TestOutcomesOfACommit(t *testing.T) {
	for outcome, list := range map[string][]stockade.Outcome{
		"unknown":    {stockade.Stored, stockade.Rejected, stockade.Unknown},
		"rejected":   {stockade.NotStored, stockade.Rejected, stockade.Stored},
		"stored":     {stockade.NotStored, stockade.Stored},
		"not_stored": {stockade.NotStored},
	} {
		p := newProcess(t)
		_, end := p.trace(t.Context(), stockade.SpanBegin{Span: stockade.SpanCommit, Keys: []string{"k"}, Time: time.Now()})
		end(stockade.SpanEnd{Outcomes: list})
		span := p.the(t, "stockade.commit")
		wantOutcome(t, span, outcome)
		want(t, "failed", span.Status().Code == codes.Error, outcome == "unknown")
	}
}
