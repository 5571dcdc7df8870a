package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/redlock"
)

// TestContextEndsAtLocalValidity holds I5: before the lock can expire on the servers, drift included, though none of
// them answers.
func TestContextEndsAtLocalValidity(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		proxies := proxied(t, f)
		ev := &events{}
		l := newLocker(t, clients(t, proxies), redlock.Options{TTL: 10 * time.Second, Observer: ev.observer()})
		for _, p := range proxies {
			p.Delay(30 * time.Millisecond)
		}
		sent := time.Now()
		k := tryLock(t, l)
		if time.Since(sent) < 60*time.Millisecond { // the first request learns the server's clock
			t.Errorf("the lock was granted after %v: the test shows nothing", time.Since(sent))
		}
		for _, p := range proxies {
			p.Swallow(true)
		}
		<-k.Context().Done()
		if took, want := time.Since(sent), 10*time.Second-100*time.Millisecond-2*time.Millisecond; took != want {
			t.Errorf("the context ended %v after the requests were sent, want %v", took, want)
		}
		if cause := context.Cause(k.Context()); cause != stockade.ErrLockLost {
			t.Errorf("the context ended with %v, want ErrLockLost", cause)
		}
		synctest.Wait()
		if told := ev.told(); len(told) != 2 || told[1].Kind != stockade.LockLost || told[1].Fence != 0 {
			t.Errorf("events %+v, want a loss", told)
		}
		for _, p := range proxies {
			p.Swallow(false)
		}
	})
}

// TestWatchdogNeedsAMajority: a lock that two of five servers lost is renewed, one that three lost is over at once.
func TestWatchdogNeedsAMajority(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		admins := clients(t, f)
		l := newLocker(t, clients(t, f), redlock.Options{TTL: 9 * time.Second})
		k := tryLock(t, l)
		synctest.Wait()
		for i, admin := range admins[:3] {
			if err := admin.Del(t.Context(), lockKey).Err(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if over := k.Context().Err() != nil; over != (i == 2) {
				t.Errorf("with %d of 5 servers that lost it the lock is over: %v", i+1, over)
			}
		}
		if err := k.Unlock(t.Context()); err != stockade.ErrLockLost {
			t.Errorf("Unlock: %v, want ErrLockLost", err)
		}
		synctest.Wait()
		wantHolding(t, admins, "after the loss")
	})
}

// TestLossIsKnownAtTheNextRenewal: not only when the validity ends.
func TestLossIsKnownAtTheNextRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		l := newLocker(t, clients(t, f), redlock.Options{TTL: 9 * time.Second})
		k := tryLock(t, l)
		synctest.Wait()
		for _, admin := range clients(t, f)[:3] {
			admin.Del(t.Context(), lockKey)
		}
		lost := time.Now()
		<-k.Context().Done()
		if took := time.Since(lost); took > 3*time.Second {
			t.Errorf("the holder learnt of the loss after %v, want a third of the TTL", took)
		}
	})
}

// TestRenewalInAShortOutage: renewals that no majority answered are repeated soon.
func TestRenewalInAShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		proxies := proxied(t, f)
		l := newLocker(t, clients(t, proxies), redlock.Options{TTL: 9 * time.Second})
		k := tryLock(t, l)
		for range 3 {
			for _, p := range proxies[:3] {
				p.Refuse(true)
				p.Cut()
			}
			time.Sleep(6 * time.Second)
			for _, p := range proxies[:3] {
				p.Refuse(false)
			}
			time.Sleep(2 * time.Second)
		}
		if k.Context().Err() != nil {
			t.Errorf("the lock is over: %v", context.Cause(k.Context()))
		}
		unlock(t, k)
	})
}

// TestShortExtend: an extension takes back nothing that was promised.
func TestShortExtend(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		proxies := proxied(t, f)
		l := newLocker(t, clients(t, proxies), redlock.Options{TTL: 10 * time.Second})
		other := newLocker(t, clients(t, f), redlock.Options{})
		k := tryLock(t, l)
		if err := k.Extend(t.Context(), 30*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for _, p := range proxies {
			p.Swallow(true)
		}
		time.Sleep(9 * time.Second)
		if k.Context().Err() != nil {
			t.Error("the lock is over before its first validity")
		}
		if _, err := other.TryLock(t.Context(), "name"); err != stockade.ErrLocked {
			t.Errorf("TryLock: %v, want ErrLocked", err)
		}
		for _, p := range proxies {
			p.Swallow(false)
		}
	})
}

// TestExtendErrors: the caller's context ends the wait for votes, and too few votes are no loss.
func TestExtendErrors(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		proxies := proxied(t, f)
		l := newLocker(t, clients(t, proxies), redlock.Options{TTL: 10 * time.Second})
		k := tryLock(t, l)
		for _, p := range proxies[2:] {
			p.Swallow(true)
		}
		why := errors.New("why")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
		defer cancel()
		if err := k.Extend(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) {
			t.Errorf("Extend: %v, want the context's error and its cause", err)
		}
		if err := k.Extend(t.Context(), time.Minute); !errors.Is(err, stockade.ErrRedis) {
			t.Errorf("Extend: %v, want ErrRedis", err)
		}
		if k.Context().Err() != nil {
			t.Error("the lock is over")
		}
		for _, p := range proxies[2:] {
			p.Swallow(false)
		}
	})
}

// TestErrRedisWhileWaiting: a Lock that ends while no majority answers says so.
func TestErrRedisWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		proxies := proxied(t, f)
		ev := &events{}
		l := newLocker(t, clients(t, proxies), redlock.Options{Observer: ev.observer()})
		for _, p := range proxies[:3] {
			p.Refuse(true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		go func() {
			time.Sleep(300 * time.Millisecond)
			if len(ev.failed()) != 3 {
				t.Errorf("after the first attempt the Observer knows of failures %v, want three servers", ev.failed())
			}
		}()
		_, err := l.Lock(ctx, "name")
		for _, want := range []error{stockade.ErrLocked, context.DeadlineExceeded, stockade.ErrRedis} {
			if !errors.Is(err, want) {
				t.Errorf("Lock: %v, want %v", err, want)
			}
		}
		for _, p := range proxies[:3] {
			p.Refuse(false)
		}
		unlock(t, tryLock(t, l))
		time.Sleep(2 * time.Second) // the clients dial no more
		ev.mu.Lock()
		defer ev.mu.Unlock()
		recovered := 0
		for _, e := range ev.redis {
			if e.Err == nil {
				recovered++
			}
		}
		if recovered != 3 {
			t.Errorf("%d servers were told to work again, want 3", recovered)
		}
		if len(ev.waits) != 1 || ev.waits[0].Polls == 0 || ev.waits[0].Err == nil {
			t.Errorf("waits %+v, want one that failed", ev.waits)
		}
	})
}
