package held

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stockade-cache/stockade/internal/tasks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errLost       = errors.New("lost")
	errUnanswered = errors.New("unanswered")
	errClosed     = errors.New("closed")
)

const (
	ttl     = 12 * time.Second
	timeout = 700 * time.Millisecond
)

// granter keeps what it was asked for, by the time since it was made.
type granter struct {
	*Locks
	begun time.Time
	renew func(*Lock) error // nil: prolongs by ttl
	wait  time.Duration     // of Free

	mu    sync.Mutex
	asked []string // guarded by mu
}

func newGranter() *granter {
	return &granter{begun: time.Now(), Locks: NewLocks(&tasks.Group{Closed: errClosed}, timeout, Errors{errLost, errUnanswered, errClosed})}
}

func (g *granter) note(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, fmt.Sprint(what, " ", time.Since(g.begun)))
}

// lock is one that is granted for ttl, without a watchdog until Hold.
func (g *granter) lock(parent context.Context) *Lock {
	var k *Lock
	k = g.New(parent, ttl, Grant{
		Renew: func(_ context.Context, ttl time.Duration) error {
			g.note(fmt.Sprint("renew to ", ttl))
			if g.renew != nil {
				return g.renew(k)
			}
			k.Prolong(time.Now().Add(ttl))
			return nil
		},
		Free: func(_ context.Context, why error) error {
			g.note(fmt.Sprint("free for ", why))
			time.Sleep(g.wait)
			return why
		},
		Lost: func() { g.note("lost") },
	})
	k.Prolong(time.Now().Add(ttl))
	return k
}

func (g *granter) held(t *testing.T) *Lock {
	ctx, end, ok := g.Begin(t.Context())
	if !ok {
		t.Fatal("closed")
	}
	defer func() {
		if end(); ctx.Err() == nil {
			t.Error("the context of a call outlives it")
		}
	}()
	k := g.lock(t.Context())
	k.Hold(k.Context())
	return k
}

func (g *granter) wantAsked(t *testing.T, want ...string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.asked, want) {
		t.Errorf("asked: %q, want %q", g.asked, want)
	}
}

func inBubble(t *testing.T, f func(t *testing.T, g *granter)) {
	synctest.Test(t, func(t *testing.T) {
		g := newGranter()
		f(t, g)
		g.Close(errClosed)
		g.work.Close()
	})
}

// TestContextLooksAtTheTime: without any watchdog the context ends at the local validity for whoever asks (I5).
func TestContextLooksAtTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, g *granter) {
		k := g.lock(t.Context())
		k.ctx = lockContext{k.ctx, k} // as Hold does
		child, cancel := context.WithCancel(k.Context())
		defer cancel()
		time.Sleep(ttl - time.Millisecond)
		if err := k.Context().Err(); err != nil {
			t.Errorf("the context of a valid lock ended with %v", err)
		}
		time.Sleep(time.Millisecond)
		for range 2 {
			if err, cause := k.Context().Err(), context.Cause(k.Context()); err != context.Canceled || cause != errLost {
				t.Errorf("the context ended with %v, cause %v, want Canceled and that it was lost", err, cause)
			}
		}
		if child.Err() == nil {
			t.Error("a context derived from it lives on")
		}
		g.wantAsked(t, "lost 12s")
	})
}

// TestUnlockLooksAtTheTime: nor does Unlock need the watchdog to know that the lock was lost.
func TestUnlockLooksAtTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, g *granter) {
		k := g.lock(t.Context())
		close(k.watched)
		time.Sleep(ttl)
		if err := k.Unlock(t.Context()); err != errLost || context.Cause(k.Context()) != errLost {
			t.Errorf("Unlock of a lock that has expired: %v, cause %v", err, context.Cause(k.Context()))
		}
		g.wantAsked(t, "lost 12s", "free for lost 12s")
	})
}

// A lock is renewed every third of its TTL, and extended at once; the answers come in any order.
func TestRenewals(t *testing.T) {
	inBubble(t, func(t *testing.T, g *granter) {
		k := g.held(t)
		time.Sleep(5 * time.Second)
		if err := k.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		k.Prolong(time.Now())
		time.Sleep(21 * time.Second)
		if err := errors.Join(k.Context().Err(), k.Unlock(t.Context()), k.Unlock(t.Context())); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		g.wantAsked(t, "renew to 12s 4s", "renew to 1m0s 5s", "renew to 1m0s 25s", "free for <nil> 26s")
		if err := k.Extend(t.Context(), time.Hour); err != errLost {
			t.Errorf("Extend after Unlock: %v", err)
		}
	})
}

// A renewal that failed is repeated soon, until the validity ends, and the context with it.
func TestRenewalsThatFail(t *testing.T) {
	inBubble(t, func(t *testing.T, g *granter) {
		g.renew = func(*Lock) error { return errUnanswered }
		k := g.held(t)
		<-k.Context().Done()
		if since := time.Since(g.begun); since != ttl || context.Cause(k.Context()) != errLost {
			t.Errorf("the context ended after %v: %v", since, context.Cause(k.Context()))
		}
		synctest.Wait()
		var asked []string
		for at := ttl / 3; at < ttl; at += timeout / 2 {
			asked = append(asked, fmt.Sprint("renew to 12s ", at))
		}
		g.wantAsked(t, append(asked, "lost 12s")...)
	})
}

// A lock is given back when no renewal is under way any more.
func TestUnlockDuringARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, g *granter) {
		g.renew = func(*Lock) error {
			time.Sleep(time.Second)
			g.note("renewed")
			return nil
		}
		k := g.held(t)
		time.Sleep(ttl/3 + time.Millisecond)
		if err := k.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		g.wantAsked(t, "renew to 12s 4s", "renewed 5s", "free for <nil> 5s")
	})
}

// A lock that its granters do not have any more ends at once.
func TestALostLock(t *testing.T) {
	inBubble(t, func(t *testing.T, g *granter) {
		g.renew = func(k *Lock) error { k.Lose(); return nil }
		k, extended := g.held(t), g.held(t)
		if err := extended.Extend(t.Context(), ttl); err != errLost {
			t.Errorf("Extend that finds it lost: %v", err)
		}
		<-k.Context().Done()
		if err := k.Extend(t.Context(), ttl); err != errLost {
			t.Errorf("Extend: %v", err)
		}
		if err := k.Unlock(t.Context()); err != errLost {
			t.Errorf("Unlock: %v", err)
		}
		g.wantAsked(t, "renew to 12s 0s", "lost 0s", "renew to 12s 4s", "lost 4s", "free for lost 4s")
	})
}

// The context of Unlock bounds the wait for the answer, and nothing else.
func TestUnlockWaitsAsLongAsItMay(t *testing.T) {
	for name, c := range map[string]struct {
		ended bool
		waits time.Duration
	}{"a deadline": {false, 3 * time.Second}, "an ended context": {true, timeout}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *granter) {
				g.wait = time.Minute
				k := g.held(t)
				why := errors.New("why")
				ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, why)
				defer cancel()
				if c.ended {
					var end context.CancelCauseFunc
					ctx, end = context.WithCancelCause(t.Context())
					end(why)
				}
				begun := time.Now()
				if err := k.Unlock(ctx); !errors.Is(err, errUnanswered) || !errors.Is(err, why) || time.Since(begun) != c.waits {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
				if err := k.Unlock(t.Context()); err != nil || time.Since(begun) != time.Minute {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
				g.wantAsked(t, "free for <nil> 0s")
			})
		})
	}
}

// Close ends the calls that wait, and releases what is held.
func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, g *granter) {
		g.wait = time.Second
		k, gone := g.held(t), g.held(t)
		gone.Lose()
		ctx, end, _ := g.Begin(t.Context())
		taken := make(chan *Lock, 1)
		go func() { // a call that is granted a lock just then
			<-ctx.Done()
			time.Sleep(time.Second)
			late := g.lock(t.Context())
			late.Hold(late.Context())
			taken <- late
			end()
		}()
		begun := time.Now()
		g.Close(errClosed)
		if time.Since(begun) != 2*time.Second {
			t.Errorf("Close took %v", time.Since(begun))
		}
		late := <-taken
		if context.Cause(ctx) != errClosed || k.Context().Err() == nil || late.Context().Err() == nil {
			t.Errorf("cause of a call that waited: %v; contexts of the locks: %v, %v", context.Cause(ctx), k.Context().Err(), late.Context().Err())
		}
		if err := errors.Join(k.Unlock(t.Context()), late.Unlock(t.Context())); !errors.Is(err, errClosed) {
			t.Errorf("Unlock: %v", err)
		}
		g.wantAsked(t, "lost 0s", "free for closed 1s", "free for closed 1s")
		if _, _, ok := g.Begin(t.Context()); ok {
			t.Error("a call begins after Close")
		}
		g.work.Close()
		if err := gone.Unlock(t.Context()); err != errLost {
			t.Errorf("Unlock of a lock that was lost before: %v", err)
		}
	})
}
