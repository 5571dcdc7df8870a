package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/redlock"
)

// TestObserverThatPanics: it ends neither a call nor the process.
func TestObserverThatPanics(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	bubble(t, func(t *testing.T, f fleet) {
		list := clients(t, f)
		faults := faulty(t, list)
		l := newLocker(t, list, redlock.Options{Observer: stockade.Observer{
			Lock: func(stockade.LockEvent) { panic("lock") }, Wait: func(stockade.WaitEvent) { panic("wait") }, Redis: func(stockade.RedisEvent) { panic("redis") },
			Trace: func(ctx context.Context, b stockade.SpanBegin) (context.Context, func(stockade.SpanEnd)) {
				if b.Span == stockade.SpanLockHold {
					panic("trace")
				}
				return nil, func(stockade.SpanEnd) { panic("end") }
			},
		}})
		faults[0].Refuse(3, isTake, errors.New("down"))
		for range 2 {
			k := tryLock(t, l)
			go func() {
				time.Sleep(time.Second)
				unlock(t, k)
			}()
			if err := l.Do(t.Context(), "name", func(ctx context.Context) error { return ctx.Err() }); err != nil {
				t.Errorf("Do: %v", err)
			}
		}
	})
}

// tracer keeps the spans that it is told of, as lines.
type tracer struct {
	mu    sync.Mutex
	lines []string
}

type spanKey struct{}

func (r *tracer) trace(ctx context.Context, b stockade.SpanBegin) (context.Context, func(stockade.SpanEnd)) {
	outer := ctx.Value(spanKey{})
	return context.WithValue(ctx, spanKey{}, b.Span), func(e stockade.SpanEnd) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, fmt.Sprintf("%v %v in %v for %v: %v", b.Span, b.Keys, outer, time.Since(b.Time).Round(time.Second), e.Err))
	}
}

// TestTrace: the spans are those of the root's lock, and each ends once.
func TestTrace(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		list := clients(t, f)
		faults := faulty(t, list)
		var r tracer
		l := newLocker(t, list, redlock.Options{Observer: stockade.Observer{Trace: r.trace}})
		ctx := context.WithValue(t.Context(), spanKey{}, "caller")
		take := func() *redlock.Lock {
			k, err := l.Lock(ctx, "name")
			if err != nil {
				t.Fatal(err)
			}
			if got := k.Context().Value(spanKey{}); got != stockade.SpanLockHold {
				t.Errorf("the lock's context is in the span %v", got)
			}
			synctest.Wait()
			return k
		}
		want := func(lines ...string) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if got, want := strings.Join(r.lines, "\n"), strings.Join(lines, "\n"); got != want {
				t.Errorf("spans:\n%s\nwant:\n%s", got, want)
			}
			r.lines = nil
		}

		k := take()
		want()
		for range 2 { // one polls, the other waits for its turn
			go func() {
				limited, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				if err := l.Do(limited, "name", nil); !errors.Is(err, stockade.ErrLocked) {
					t.Errorf("Do: %v, want ErrLocked", err)
				}
			}()
		}
		time.Sleep(3 * time.Second)
		const gaveUp = "lock wait [name] in caller for 2s: stockade: locked: context deadline exceeded"
		want(gaveUp, gaveUp)
		go func() {
			time.Sleep(time.Second)
			unlock(t, k)
			unlock(t, k)
		}()
		k = take()
		want("lock hold [name] in caller for 4s: <nil>", "lock wait [name] in caller for 1s: <nil>")
		for _, admin := range clients(t, f) {
			admin.FlushAll(t.Context())
		}
		<-k.Context().Done()
		_ = k.Unlock(t.Context())
		want("lock hold [name] in caller for 3s: stockade: lock lost")

		k = take()
		for _, f := range faults {
			f.Refuse(3, isUnlock, errors.New("down"))
		}
		_ = k.Unlock(t.Context())
		synctest.Wait()
		if len(r.lines) != 1 || !strings.Contains(r.lines[0], "lock hold [name] in caller for 0s: stockade: redis failed") {
			t.Errorf("spans %q, want a release that failed", r.lines)
		}
		r.lines = nil
		k = take() // when it has expired
		_ = l.Close()
		_ = k.Unlock(t.Context())
		want("lock wait [name] in caller for 10s: <nil>", "lock hold [name] in caller for 0s: <nil>")
	})
}

// TestALockThatIsLostAsItIsTaken: a lock that expires while the Observer is told of it is lost after it was taken.
func TestALockThatIsLostAsItIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		var mu sync.Mutex
		var told []stockade.LockKind
		l := newLocker(t, clients(t, f), redlock.Options{Observer: stockade.Observer{
			Lock: func(e stockade.LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, e.Kind)
			},
			Trace: func(ctx context.Context, b stockade.SpanBegin) (context.Context, func(stockade.SpanEnd)) {
				time.Sleep(time.Minute)
				return ctx, nil
			},
		}})
		for range 50 {
			k := tryLock(t, l)
			<-k.Context().Done()
			if err := k.Unlock(t.Context()); err != stockade.ErrLockLost {
				t.Errorf("unlock: %v", err)
			}
			mu.Lock()
			if len(told) != 2 || told[0] != stockade.LockTaken || told[1] != stockade.LockLost {
				t.Fatalf("told %v, want taken, lost", told)
			}
			told = nil
			mu.Unlock()
		}
	})
}
