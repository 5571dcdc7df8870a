package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/redlock"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// patient are options of a client that waits for ever and gives up nothing.
func patient(o *redis.Options) {
	o.ReadTimeout, o.WriteTimeout, o.MaxRetries, o.PoolSize = -1, -1, 10, 2
}

// TestServersDown holds I8 on five real servers, with the client's defaults and with one that waits for ever: with two
// of them frozen or killed everything works, with three nothing does, and every call ends with its context.
func TestServersDown(t *testing.T) {
	t.Parallel() // it waits most of the time
	const ttl = time.Second
	const busy = 250 * time.Millisecond // what a machine may add; TestCallsEndWithTheirContext is exact
	for _, way := range []struct {
		name   string
		down   func(t *testing.T, f fleet, i int)
		change func(*redis.Options)
	}{
		{"frozen", func(t *testing.T, f fleet, i int) { f.real(i).Freeze(t) }, func(*redis.Options) {}},
		{"frozen, patient clients", func(t *testing.T, f fleet, i int) { f.real(i).Freeze(t) }, patient},
		{"killed", func(_ *testing.T, f fleet, i int) { f.real(i).Kill() }, func(*redis.Options) {}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			f := reals(t, 5)
			list := clients(t, f, way.change)
			ev := &events{}
			l := newLocker(t, list, redlock.Options{TTL: ttl, Observer: ev.observer()})
			held := tryLock(t, l)
			name := "other"
			within := func(op string, limit time.Duration, want error, call func(ctx context.Context) error) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				if err := call(ctx); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", op, err, want)
				}
				if took := time.Since(began); took > limit+busy {
					t.Errorf("%s took %v, want %v at most", op, took, limit)
				}
			}

			way.down(t, f, 3)
			way.down(t, f, 4)
			within("Do with two down", 200*time.Millisecond, nil, func(ctx context.Context) error {
				return l.Do(ctx, name, func(context.Context) error { return nil })
			})
			within("Extend with two down", 200*time.Millisecond, nil, func(ctx context.Context) error { return held.Extend(ctx, ttl) })
			for _, i := range []int{3, 4} {
				if addr := f.real(i).Addr(); !knows(ev, addr) {
					t.Errorf("the Observer was not told that %s is down: %+v", addr, ev.failed())
				}
			}

			way.down(t, f, 2)
			lost, ended := time.Now(), make(chan time.Time, 1)
			context.AfterFunc(held.Context(), func() { ended <- time.Now() })
			within("TryLock with three down", 100*time.Millisecond, context.DeadlineExceeded, func(ctx context.Context) error {
				_, err := l.TryLock(ctx, name)
				if errors.Is(err, stockade.ErrRedis) { // they said so before the deadline
					return context.DeadlineExceeded
				}
				return err
			})
			within("Lock with three down", 400*time.Millisecond, context.DeadlineExceeded, func(ctx context.Context) error { _, err := l.Lock(ctx, name); return err })
			within("Lock with three down", 400*time.Millisecond, stockade.ErrLocked, func(ctx context.Context) error { _, err := l.Lock(ctx, name); return err })
			within("TryLock without a deadline", 250*time.Millisecond, stockade.ErrRedis, func(context.Context) error { _, err := l.TryLock(t.Context(), name); return err })

			// Its holder learns by the local validity, whatever the servers do.
			if took := (<-ended).Sub(lost); took > ttl {
				t.Errorf("the holder learnt of the loss after %v", took)
			}
			if !errors.Is(context.Cause(held.Context()), stockade.ErrLockLost) {
				t.Errorf("the context ended with %v, want ErrLockLost", context.Cause(held.Context()))
			}
			within("Unlock with three down", 100*time.Millisecond, stockade.ErrRedis, func(ctx context.Context) error {
				err := held.Unlock(ctx)
				if errors.Is(err, stockade.ErrLockLost) {
					return stockade.ErrRedis
				}
				return err
			})
			for i := 2; i < 5; i++ {
				f.real(i).Kill() // so that Close has nothing to wait for
			}
		})
	}
}

// TestCallsEndWithTheirContext holds I8 exactly: with three servers frozen, and clients that wait for ever, calls end at their
// deadline, or after RedisTimeout; with two frozen at once.
func TestCallsEndWithTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		const ttl = 10 * time.Second
		proxies := proxied(t, f)
		l := newLocker(t, clients(t, proxies, patient), redlock.Options{TTL: ttl})
		held := tryLock(t, l)
		takes := func(op string, exactly, deadline time.Duration, call func(ctx context.Context)) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			began := time.Now()
			call(ctx)
			if took := time.Since(began); took != exactly {
				t.Errorf("%s took %v, want %v", op, took, exactly)
			}
		}
		proxies[0].Freeze()
		proxies[1].Freeze()
		takes("Do with two frozen", 0, time.Second, func(ctx context.Context) {
			if err := l.Do(ctx, "other", func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		takes("Extend with two frozen", 0, time.Second, func(ctx context.Context) {
			if err := held.Extend(ctx, ttl); err != nil {
				t.Error(err)
			}
		})
		proxies[2].Freeze()
		takes("TryLock", 100*time.Millisecond, 100*time.Millisecond, func(ctx context.Context) { _, _ = l.TryLock(ctx, "other") })
		takes("TryLock with time", 250*time.Millisecond, time.Minute, func(ctx context.Context) { _, _ = l.TryLock(ctx, "other") })
		takes("Lock", 700*time.Millisecond, 700*time.Millisecond, func(ctx context.Context) { _, _ = l.Lock(ctx, "other") })
		takes("Do", 700*time.Millisecond, 700*time.Millisecond, func(ctx context.Context) {
			_ = l.Do(ctx, "other", func(context.Context) error { return nil })
		})
		takes("Unlock", 100*time.Millisecond, 100*time.Millisecond, func(ctx context.Context) { _ = held.Unlock(ctx) })
		for _, p := range proxies {
			p.Thaw()
		}
	})
}

// knows reports whether the Observer knows of a server that is down, within its time.
func knows(ev *events, addr string) bool {
	for range 500 {
		if ev.failed()[addr] > 0 {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

// TestFrozenServersCostABoundedNumberOfGoroutines: however often they are asked, with clients that wait for ever.
func TestFrozenServersCostABoundedNumberOfGoroutines(t *testing.T) {
	f := reals(t, 3)
	list := clients(t, f, patient, func(o *redis.Options) { o.PoolSize = 1000 })
	l := newLocker(t, list, redlock.Options{TTL: 200 * time.Millisecond})
	if err := l.Do(t.Context(), "name", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	f.real(2).Freeze(t)
	before := runtime.NumGoroutine()
	for i := range 300 {
		k, err := l.TryLock(t.Context(), fmt.Sprint(i))
		if err != nil {
			continue // a busy machine
		}
		_ = k.Unlock(t.Context())
	}
	// 64 calls, and some of the clients. Those that wait for a place leave after RedisTimeout.
	redistest.Eventually(t, 5*time.Second, "no more goroutines than calls that may be under way", func() bool {
		return runtime.NumGoroutine() <= before+64+10
	})
	f.real(2).Kill()
}

// TestRefusals: what a majority refuses for good is returned at once; what a minority refuses is told and no more.
func TestRefusals(t *testing.T) {
	f := reals(t, 3)
	list := clients(t, f)
	ev := &events{}
	l := newLocker(t, list, redlock.Options{Observer: ev.observer()})
	list[0].LPush(t.Context(), lockKey, "x")
	k, err := l.Lock(t.Context(), "name")
	if err != nil {
		t.Fatalf("Lock with one server that refuses: %v", err)
	}
	unlock(t, k)
	list[1].LPush(t.Context(), lockKey, "x")
	for range 2 {
		if _, err := l.Lock(t.Context(), "name"); !errors.Is(err, stockade.ErrRedis) || errors.Is(err, stockade.ErrLocked) || !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("Lock: %v, want ErrRedis and WRONGTYPE", err)
		}
	}
	if list[0].LLen(t.Context(), lockKey).Val() != 1 || list[1].LLen(t.Context(), lockKey).Val() != 1 {
		t.Error("another's key was touched")
	}
	redistest.Eventually(t, 5*time.Second, "the vote of the third server is given back", func() bool {
		return list[2].Exists(t.Context(), lockKey).Val() == 0
	})
	ev.mu.Lock()
	defer ev.mu.Unlock()
	for _, e := range ev.redis {
		if !e.Misconfigured || e.Op != "take" && e.Op != "unlock" {
			t.Errorf("event %+v, want a misconfiguration", e)
		}
	}
	if len(ev.redis) != 2 {
		t.Errorf("events %+v, want one misconfiguration of each server", ev.redis)
	}
}

// TestManyNames: callers of Lock wait until they can be asked for, and do not overrun RedisTimeout together.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakes(t, 3)
		proxies := proxied(t, f)
		ev := &events{}
		l := newLocker(t, clients(t, proxies), redlock.Options{Observer: ev.observer()})
		var callers sync.WaitGroup
		for _, delay := range []time.Duration{time.Millisecond, 100 * time.Millisecond} { // first to connect
			for _, p := range proxies {
				p.Delay(delay)
			}
			for i := range 200 {
				callers.Go(func() {
					if _, err := l.Lock(t.Context(), fmt.Sprint(i, delay)); err != nil {
						t.Errorf("Lock: %v", err)
					}
				})
			}
			callers.Wait()
		}
		if failed := ev.failed(); len(failed) != 0 {
			t.Errorf("calls to servers that work failed: %v", failed)
		}
		for _, p := range proxies {
			p.Delay(0)
		}
	})
}

// TestPassingRefusals: what a server refuses for a while is waited for, and told as an outage.
func TestPassingRefusals(t *testing.T) {
	for _, answer := range []string{
		"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.", "MISCONF Redis is configured to save RDB snapshots",
	} {
		bubble(t, func(t *testing.T, f fleet) {
			ev := &events{}
			l := newLocker(t, clients(t, f), redlock.Options{Observer: ev.observer()})
			for i := range 3 {
				f.fake(i).Mini.SetError(answer)
				time.AfterFunc(3*time.Second, func() { f.fake(i).Mini.SetError("") })
			}
			k, err := l.Lock(t.Context(), "name")
			if err != nil {
				t.Fatalf("Lock while three servers say %q: %v", answer, err)
			}
			unlock(t, k)
			synctest.Wait()
			ev.mu.Lock()
			defer ev.mu.Unlock()
			if len(ev.redis) == 0 || ev.redis[0].Misconfigured {
				t.Errorf("%q is told as %+v", answer, ev.redis)
			}
		})
	}
}
