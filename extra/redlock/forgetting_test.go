package redlock_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/redlock"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestRestartOfAnEmptyServer: one of five that comes back without the lock gives it to nobody, since the other four
// have it, and its holder goes on. (Three that do are the end of the promise.)
func TestRestartOfAnEmptyServer(t *testing.T) {
	t.Parallel() // it waits most of the time
	f := reals(t, 5)
	a, b := newLocker(t, clients(t, f), redlock.Options{TTL: time.Second}), newLocker(t, clients(t, f), redlock.Options{TTL: time.Second})
	k := tryLock(t, a)
	f.real(0).Restart(t)
	for began := time.Now(); time.Since(began) < 1200*time.Millisecond; {
		if _, err := b.TryLock(t.Context(), "name"); err == nil {
			t.Fatal("two holders")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if k.Context().Err() != nil {
		t.Error("the holder lost the lock")
	}
	unlock(t, k)
	if _, err := b.Lock(t.Context(), "name"); err != nil {
		t.Errorf("Lock after Unlock: %v", err)
	}
}

// TestClockOfOneServerJumps: the lock expires there, and nowhere else; and the server's vote counts again at once.
func TestClockOfOneServerJumps(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		admins := clients(t, f)
		proxies := proxied(t, f)
		a, b := newLocker(t, clients(t, proxies), redlock.Options{}), newLocker(t, clients(t, f), redlock.Options{})
		unlock(t, tryLock(t, b)) // it knows the clocks
		synctest.Wait()
		for _, jump := range []time.Duration{time.Hour, -2 * time.Hour} {
			k := tryLock(t, a)
			synctest.Wait()
			f.fake(0).Mini.SetTime(time.Now().Add(jump))
			if jump > 0 {
				wantHolding(t, admins, "after the jump", 1, 2, 3, 4)
			}
			for range 20 {
				if _, err := b.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrLocked) {
					t.Fatalf("TryLock: %v, want ErrLocked", err)
				}
				time.Sleep(time.Second)
			}
			if k.Context().Err() != nil {
				t.Error("the holder lost the lock")
			}
			unlock(t, k)
			synctest.Wait()

			for _, p := range proxies[3:] {
				p.Refuse(true)
				p.Cut()
			}
			f.fake(0).Mini.SetTime(time.Now().Add(2 * jump))
			unlock(t, tryLock(t, a)) // by the votes of 0, 1 and 2
			synctest.Wait()
			for _, p := range proxies[3:] {
				p.Refuse(false)
			}
			time.Sleep(2 * time.Second) // the clients dial no more
		}
	})
}

// TestOneServerByTwoNames: it votes once, so that two callers do not get a majority each.
func TestOneServerByTwoNames(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		twice := fleet{f[0], f[0], f[1]}
		l := newLocker(t, clients(t, twice), redlock.Options{})
		k := tryLock(t, l)
		unlock(t, k)
		synctest.Wait()
		occupy(t, clients(t, f), 1)
		if _, err := l.TryLock(t.Context(), "name"); err != stockade.ErrLocked {
			t.Errorf("TryLock by the two votes of one server: %v, want ErrLocked", err)
		}
		synctest.Wait()
		wantHolding(t, clients(t, f), "after the attempt", 1)
	})
}

// TestContendersInAStorm has 100 callers of five processes contend on real servers, of which two at a time are frozen,
// cut or slow: never two holders.
func TestContendersInAStorm(t *testing.T) {
	f := reals(t, 5)
	var (
		holders atomic.Int32
		callers sync.WaitGroup
		served  int // guarded by the lock
		over    = make(chan struct{})
	)
	var all [][]*redistest.Proxy
	for range 5 {
		proxies := proxied(t, f)
		all = append(all, proxies)
		l := newLocker(t, clients(t, proxies, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), redlock.Options{TTL: 2 * time.Second, RedisTimeout: 100 * time.Millisecond})
		for range 20 {
			callers.Go(func() {
				k, err := l.Lock(t.Context(), "name")
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n := holders.Add(1); n != 1 && k.Context().Err() == nil {
					t.Errorf("%d holders", n)
				}
				served++
				runtime.Gosched()
				holders.Add(-1)
				if err := k.Unlock(t.Context()); err != nil && !errors.Is(err, stockade.ErrRedis) {
					t.Errorf("Unlock: %v", err)
				}
			})
		}
	}
	var storm sync.WaitGroup
	storm.Go(func() {
		for i := 0; ; i++ {
			first, second := i%5, (i+2)%5
			f.real(first).Freeze(t)
			for _, proxies := range all {
				proxies[second].Cut()
				proxies[second].Delay(3 * time.Millisecond)
			}
			select {
			case <-over:
			case <-time.After(30 * time.Millisecond):
			}
			f.real(first).Thaw(t)
			for _, proxies := range all {
				proxies[second].Delay(0)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	callers.Wait()
	close(over)
	storm.Wait()
	if served != 100 {
		t.Errorf("%d callers were served, want 100", served)
	}
}
