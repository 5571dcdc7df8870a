// Package locktest holds what every lock of this project must do, as one suite for all of them.
package locktest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
)

// Locker is what is tested. See [stockade.Locker].
type Locker interface {
	TryLock(ctx context.Context, name string) (Lock, error)
	Lock(ctx context.Context, name string) (Lock, error)
	Do(ctx context.Context, name string, fn func(ctx context.Context) error) error
	Close() error
}

// Lock is a lock that was taken. See [stockade.Lock].
type Lock interface {
	Context() context.Context
	Token() string
	Name() string
	Extend(ctx context.Context, ttl time.Duration) error
	Unlock(ctx context.Context) error
}

// Fenced is a [Lock] that has a fence: the suite sees to it that fences grow.
type Fenced interface {
	Lock
	Fence() int64
}

// Servers are what one test runs on.
type Servers struct {
	TTL  time.Duration               // of the locks that New makes
	New  func(t *testing.T) Locker   // a Locker of another process: with a client of its own, closed with the test
	Lose func(t *testing.T)          // makes the servers forget all locks
	Free func(name string) (ok bool) // reports whether the servers have no lock of that name
}

// Run runs the suite. start calls the test that it is given with fresh servers, perhaps in a bubble of
// [testing/synctest]: the suite lets time pass only by sleeping.
func Run(t *testing.T, start func(t *testing.T, test func(*testing.T, Servers))) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Servers)
	}{
		{"one holder at a time", testExclusion},
		{"names do not touch each other", testNames},
		{"a waiter gets the lock", testWait},
		{"a waiter leaves with its context", testWaiterLeaves},
		{"an ended context takes nothing", testEndedContext},
		{"unlock is repeatable", testUnlockTwice},
		{"unlock needs no live context", testUnlockEndedContext},
		{"unlock leaves the next owner's lock", testOverrun},
		{"a holder keeps the lock beyond its TTL", testRenewal},
		{"the context ends with a loss", testLoss},
		{"the context has the caller's values only", testContext},
		{"extend", testExtend},
		{"do", testDo},
		{"do releases on panic and exit", testDoPanic},
		{"do tells of a loss", testDoLoss},
		{"do holds the lock until fn returns", testDoAfterItsContext},
		{"close", testClose},
		{"contenders take turns", testContenders},
	} {
		t.Run(test.name, func(t *testing.T) { start(t, test.run) })
	}
}

func testExclusion(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	first := take(t, a)
	for _, l := range []Locker{a, b} {
		if _, err := l.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrLocked) {
			t.Errorf("TryLock of a held lock: %v, want ErrLocked", err)
		}
	}
	unlock(t, first)
	second := take(t, b)
	grows(t, first, second)
	if first.Token() == second.Token() || len(first.Token()) != 32 {
		t.Errorf("tokens %q and %q, want 32 digits that differ", first.Token(), second.Token())
	}
	if second.Name() != "name" {
		t.Errorf("name %q", second.Name())
	}
	unlock(t, second)
}

func testNames(t *testing.T, s Servers) {
	l := s.New(t)
	var locks []Lock
	for _, name := range []string{"", "%", "x", "{x}", "{}x", "}{", "{x", "a{b}c", "\xff\xfe", "a b\r\n\x00", string(make([]byte, 1<<20))} {
		k, err := l.TryLock(t.Context(), name)
		if err != nil {
			t.Fatalf("TryLock(%.20q): %v", name, err)
		}
		locks = append(locks, k)
	}
	for _, k := range locks {
		unlock(t, k)
	}
}

func testWait(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	held := take(t, a)
	got := make(chan Lock, 1)
	go func() {
		k, err := b.Lock(t.Context(), "name")
		if err != nil {
			t.Errorf("Lock: %v", err)
		}
		got <- k
	}()
	time.Sleep(s.TTL / 2)
	select {
	case <-got:
		t.Fatal("two holders")
	default:
	}
	unlock(t, held)
	k := <-got
	if k == nil {
		return
	}
	grows(t, held, k)
	unlock(t, k)
}

func testWaiterLeaves(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	held := take(t, a)
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(s.TTL/4, func() { cancel(why) })
	if _, err := b.Lock(ctx, "name"); !errors.Is(err, stockade.ErrLocked) || !errors.Is(err, why) {
		t.Errorf("Lock until its context ends: %v, want ErrLocked and the cause", err)
	}
	limited, done := context.WithTimeout(t.Context(), s.TTL/4)
	defer done()
	if _, err := b.Lock(limited, "name"); !errors.Is(err, stockade.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock until its deadline: %v, want ErrLocked and DeadlineExceeded", err)
	}
	unlock(t, held)
	unlock(t, take(t, b))
}

func testEndedContext(t *testing.T, s Servers) {
	l := s.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.TryLock(ctx, "name"); !errors.Is(err, context.Canceled) {
		t.Errorf("TryLock: %v, want Canceled", err)
	}
	if _, err := l.Lock(ctx, "name"); !errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v, want Canceled", err)
	}
	if err := l.Do(ctx, "name", func(context.Context) error { t.Error("fn was called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Do: %v, want Canceled", err)
	}
	if !s.Free("name") {
		t.Error("the lock was taken")
	}
}

func testUnlockTwice(t *testing.T, s Servers) {
	l := s.New(t)
	k := take(t, l)
	unlock(t, k)
	next := take(t, l)
	unlock(t, k)
	if s.Free("name") {
		t.Error("the second Unlock released the next owner's lock")
	}
	s.Lose(t)
	for range 2 {
		if err := next.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) {
			t.Errorf("Unlock of a lost lock: %v, want ErrLockLost", err)
		}
	}
}

func testUnlockEndedContext(t *testing.T, s Servers) {
	l := s.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	k, err := l.TryLock(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := k.Context().Err(); err != nil {
		t.Errorf("the lock's context ended with the caller's: %v", err)
	}
	if err := k.Unlock(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if !s.Free("name") {
		t.Error("the lock was not released")
	}
}

func testOverrun(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	over := take(t, a)
	s.Lose(t)
	next := take(t, b)
	if err := over.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) {
		t.Errorf("Unlock of a holder that overran: %v, want ErrLockLost", err)
	}
	if _, err := a.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrLocked) {
		t.Errorf("the next owner's lock: %v, want ErrLocked", err)
	}
	if next.Context().Err() != nil {
		t.Error("the next owner's context ended")
	}
	unlock(t, next)
}

func testRenewal(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	k := take(t, a)
	for range 12 {
		time.Sleep(s.TTL / 4)
		if _, err := b.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrLocked) {
			t.Fatalf("TryLock of a lock that is held: %v, want ErrLocked", err)
		}
	}
	if k.Context().Err() != nil {
		t.Errorf("the context ended: %v", context.Cause(k.Context()))
	}
	unlock(t, k)
}

func testLoss(t *testing.T, s Servers) {
	k := take(t, s.New(t))
	lost := time.Now()
	s.Lose(t)
	ended(t, k.Context())
	if took := time.Since(lost); took > s.TTL {
		t.Errorf("the context ended %v after the loss", took)
	}
	if !s.Free("name") {
		t.Error("a lost lock was created again")
	}
	if err := k.Extend(t.Context(), s.TTL); !errors.Is(err, stockade.ErrLockLost) {
		t.Errorf("Extend: %v, want ErrLockLost", err)
	}
	if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) {
		t.Errorf("Unlock: %v, want ErrLockLost", err)
	}
}

// ended waits until a context ends for a loss. A context derived from it ends with it.
func ended(t *testing.T, ctx context.Context) {
	t.Helper()
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	<-child.Done()
	for _, ctx := range []context.Context{ctx, child} {
		if ctx.Err() != context.Canceled || !errors.Is(context.Cause(ctx), stockade.ErrLockLost) {
			t.Errorf("the context ended with %v, cause %v, want Canceled and ErrLockLost", ctx.Err(), context.Cause(ctx))
		}
	}
}

type contextKey struct{}

func testContext(t *testing.T, s Servers) {
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "value"))
	k, err := s.New(t).Lock(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := k.Context().Value(contextKey{}); got != "value" {
		t.Errorf("value %v, want the caller's", got)
	}
	if k.Context().Err() != nil {
		t.Error("the context ended with the caller's")
	}
	unlock(t, k)
	select {
	case <-k.Context().Done():
	default:
		t.Error("the context lives on after Unlock")
	}
	if errors.Is(context.Cause(k.Context()), stockade.ErrLockLost) {
		t.Error("an Unlock counts as a loss")
	}
}

func testExtend(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	k := take(t, a)
	for _, ttl := range []time.Duration{-1, 0, 1, 999 * time.Microsecond} {
		if k.Extend(t.Context(), ttl) == nil {
			t.Errorf("Extend(%v) succeeded", ttl)
		}
	}
	if err := k.Extend(t.Context(), 3*s.TTL); err != nil {
		t.Fatalf("Extend: %v", err)
	}
	for range 10 {
		time.Sleep(s.TTL / 2)
		if _, err := b.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrLocked) {
			t.Fatalf("TryLock of a lock that is held: %v, want ErrLocked", err)
		}
	}
	if k.Context().Err() != nil {
		t.Error("the context ended")
	}
	unlock(t, k)
	if err := k.Extend(t.Context(), s.TTL); !errors.Is(err, stockade.ErrLockLost) {
		t.Errorf("Extend after Unlock: %v, want ErrLockLost", err)
	}
}

func testDo(t *testing.T, s Servers) {
	l := s.New(t)
	why := errors.New("why")
	for _, want := range []error{nil, why} {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "value"))
		err := l.Do(ctx, "name", func(inner context.Context) error {
			if s.Free("name") {
				t.Error("the lock is not held")
			}
			if inner.Value(contextKey{}) != "value" {
				t.Error("fn's context does not have ctx's values")
			}
			if inner.Err() != nil {
				t.Error("fn's context has ended")
			}
			cancel()
			if inner.Err() == nil {
				t.Error("fn's context does not end with ctx")
			}
			return want
		})
		if err != want {
			t.Errorf("Do: %v, want %v", err, want)
		}
		if !s.Free("name") {
			t.Error("the lock was not released")
		}
	}
}

func testDoPanic(t *testing.T, s Servers) {
	l := s.New(t)
	func() {
		defer func() {
			if got := recover(); got != "why" {
				t.Errorf("recovered %v, want the panic of fn", got)
			}
		}()
		_ = l.Do(t.Context(), "name", func(context.Context) error { panic("why") })
	}()
	if !s.Free("name") {
		t.Error("the lock was not released after a panic")
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = l.Do(t.Context(), "name", func(context.Context) error { runtime.Goexit(); return nil })
		t.Error("Do returned after Goexit")
	}()
	<-exited
	if !s.Free("name") {
		t.Error("the lock was not released after Goexit")
	}
}

func testDoLoss(t *testing.T, s Servers) {
	why := errors.New("why")
	err := s.New(t).Do(t.Context(), "name", func(ctx context.Context) error {
		s.Lose(t)
		ended(t, ctx)
		return why
	})
	if !errors.Is(err, why) || !errors.Is(err, stockade.ErrLockLost) {
		t.Errorf("Do: %v, want fn's error and ErrLockLost", err)
	}
	err = s.New(t).Do(t.Context(), "name", func(context.Context) error { s.Lose(t); return nil })
	if !errors.Is(err, stockade.ErrLockLost) {
		t.Errorf("Do that noticed the loss at the end: %v, want ErrLockLost", err)
	}
}

// testDoAfterItsContext: work that was cancelled cleans up under the lock, however long that takes.
func testDoAfterItsContext(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := a.Do(ctx, "name", func(context.Context) error {
		cancel()
		for range 6 {
			time.Sleep(s.TTL / 4)
			if _, err := b.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrLocked) {
				t.Errorf("TryLock while fn runs: %v, want ErrLocked", err)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("Do: %v", err)
	}
}

func testClose(t *testing.T, s Servers) {
	a, b := s.New(t), s.New(t)
	held := take(t, a)
	other, err := b.TryLock(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := a.Lock(t.Context(), "other")
		waiting <- err
	}()
	time.Sleep(s.TTL / 10)
	var closing sync.WaitGroup
	for range 2 {
		closing.Go(func() {
			if err := a.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	closing.Wait()
	if err := <-waiting; !errors.Is(err, stockade.ErrClosed) {
		t.Errorf("a waiter got %v, want ErrClosed", err)
	}
	if held.Context().Err() == nil || !errors.Is(context.Cause(held.Context()), stockade.ErrClosed) {
		t.Errorf("the context ended with %v, want ErrClosed", context.Cause(held.Context()))
	}
	if !s.Free("name") {
		t.Error("the lock was not released")
	}
	if err := held.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) || !errors.Is(err, stockade.ErrClosed) {
		t.Errorf("Unlock: %v, want ErrLockLost and ErrClosed", err)
	}
	if err := held.Extend(t.Context(), s.TTL); !errors.Is(err, stockade.ErrLockLost) {
		t.Errorf("Extend: %v, want ErrLockLost", err)
	}
	if _, err := a.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrClosed) {
		t.Errorf("TryLock: %v, want ErrClosed", err)
	}
	if _, err := a.Lock(t.Context(), "name"); !errors.Is(err, stockade.ErrClosed) {
		t.Errorf("Lock: %v, want ErrClosed", err)
	}
	if err := a.Do(t.Context(), "name", nil); !errors.Is(err, stockade.ErrClosed) {
		t.Errorf("Do: %v, want ErrClosed", err)
	}
	unlock(t, other)
}

// testContenders has 100 callers of four processes count under the lock.
func testContenders(t *testing.T, s Servers) {
	var (
		callers sync.WaitGroup
		holders atomic.Int32
		served  []Lock // guarded by the lock
	)
	for range 4 {
		l := s.New(t)
		for range 25 {
			callers.Go(func() {
				k, err := l.Lock(t.Context(), "name")
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d holders", n)
				}
				runtime.Gosched()
				served = append(served, k)
				holders.Add(-1)
				unlock(t, k)
			})
		}
	}
	callers.Wait()
	if len(served) != 100 {
		t.Fatalf("%d callers were served, want 100", len(served))
	}
	for i := range served[1:] {
		grows(t, served[i], served[i+1])
	}
}

func take(t *testing.T, l Locker) Lock {
	t.Helper()
	k, err := l.TryLock(t.Context(), "name")
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return k
}

// grows fails when the fence of a later grant is not larger. Locks without fences pass.
func grows(t *testing.T, before, after Lock) {
	t.Helper()
	a, fenced := before.(Fenced)
	if !fenced {
		return
	}
	if b := after.(Fenced); b.Fence() <= a.Fence() {
		t.Errorf("fence %d after %d, want it to grow", b.Fence(), a.Fence())
	}
}

func unlock(t *testing.T, k Lock) {
	t.Helper()
	if err := k.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}
