package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/redlock"
)

// occupy gives the lock to a stranger on some servers, as a rival has them that meets us half-way.
func occupy(t testing.TB, admins []redis.UniversalClient, servers ...int) {
	t.Helper()
	for _, i := range servers {
		if err := admins[i].Set(t.Context(), lockKey, fmt.Sprintf("%032d", i), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func wantHolding(t testing.TB, admins []redis.UniversalClient, when string, want ...int) {
	t.Helper()
	if got := holding(t.Context(), admins, lockKey); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: the servers %v have the lock, want %v", when, got, want)
	}
}

// TestMinorityIsFreedAtOnce: votes that were not enough do not bar others until they expire.
func TestMinorityIsFreedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		admins := clients(t, f)
		l := newLocker(t, clients(t, f), redlock.Options{})
		occupy(t, admins, 0, 1, 2)
		if _, err := l.TryLock(t.Context(), "name"); err != stockade.ErrLocked {
			t.Errorf("TryLock: %v, want ErrLocked", err)
		}
		synctest.Wait()
		wantHolding(t, admins, "after the attempt", 0, 1, 2)
	})
}

// TestCancelledAttemptLeavesNothing: redsync would release on the context that was cancelled. The context ends while
// two servers have given their votes and three are slow, and also when all have answered and nobody waits.
func TestCancelledAttemptLeavesNothing(t *testing.T) {
	for _, how := range []string{"TryLock", "Lock", "Do"} {
		bubble(t, func(t *testing.T, f fleet) {
			proxies := proxied(t, f)
			l := newLocker(t, clients(t, proxies), redlock.Options{})
			unlock(t, tryLock(t, l)) // the servers know the scripts, the Locker their clocks
			for _, p := range proxies[2:] {
				p.Delay(100 * time.Millisecond)
			}
			why := errors.New("why")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
			began := time.Now()
			err := map[string]func() error{
				"TryLock": func() error { _, err := l.TryLock(ctx, "name"); return err },
				"Lock":    func() error { _, err := l.Lock(ctx, "name"); return err },
				"Do":      func() error { return l.Do(ctx, "name", nil) },
			}[how]()
			if took := time.Since(began); took != 20*time.Millisecond {
				t.Errorf("%s returned after %v, want when its context ended", how, took)
			}
			if !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want the context's error and its cause", how, err)
			}
			time.Sleep(300 * time.Millisecond) // the slow votes come, and are given back
			wantHolding(t, clients(t, f), how+" was cancelled")
		})
	}
}

// TestLostReplyOfAnAcquisition: a server that took the lock and could not say so is released with the others, after a
// failed attempt as after a lock.
func TestLostReplyOfAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		admins, list := clients(t, f), clients(t, f)
		faults := faulty(t, list)
		l := newLocker(t, list, redlock.Options{})
		unlock(t, tryLock(t, l))
		synctest.Wait()

		faults[3].LoseReply(3, isTake) // each that the Locker tries
		faults[4].LoseReply(3, isTake)
		k := tryLock(t, l)
		synctest.Wait()
		wantHolding(t, admins, "two replies were lost", 0, 1, 2, 3, 4)
		unlock(t, k)
		synctest.Wait()
		wantHolding(t, admins, "after Unlock")

		for _, f := range faults[2:] {
			f.LoseReply(3, isTake)
		}
		if _, err := l.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrRedis) {
			t.Errorf("TryLock: %v, want ErrRedis", err)
		}
		synctest.Wait()
		wantHolding(t, admins, "three replies were lost")

		for _, f := range faults {
			f.LoseReply(1, isTake)
		}
		k = tryLock(t, l) // its votes were asked for again, and given again
		for _, f := range faults {
			f.LoseReply(1, isRenew)
		}
		if err := k.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend: %v", err)
		}
		unlock(t, k)
	})
}

// TestLateVote: a request that a server executes after the lock was released is followed by a release of its own.
func TestLateVote(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		admins, list := clients(t, f), clients(t, f)
		faults := faulty(t, list)
		l := newLocker(t, list, redlock.Options{})
		unlock(t, tryLock(t, l))
		synctest.Wait()
		reached, release := faults[4].Block(isTake)
		k := tryLock(t, l)
		<-reached
		unlock(t, k)
		synctest.Wait()
		release()
		synctest.Wait()
		wantHolding(t, admins, "after a late vote")
	})
}

// TestTooLateVote: a server that was frozen gives nothing to those who have left, even if it cannot be told of that;
// nor when it is frozen again, though its answer of the first time says little about its clock.
func TestTooLateVote(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		admins, proxies := clients(t, f), proxied(t, f)
		list := clients(t, proxies)
		faults := faulty(t, list)
		l := newLocker(t, list, redlock.Options{})
		unlock(t, tryLock(t, l))
		synctest.Wait()
		for _, frozen := range []time.Duration{2 * time.Second, time.Second} { // past RedisTimeout, and all tries to unlock
			faults[4].Refuse(3, isUnlock, errors.New("no network"))
			proxies[4].Freeze()
			unlock(t, tryLock(t, l))
			time.Sleep(frozen)
			before := faults[4].Count()
			proxies[4].Thaw() // the server gets the request
			time.Sleep(time.Second)
			wantHolding(t, admins, "after a vote that came too late")
			if n := faults[4].Count() - before; n != 0 {
				t.Errorf("%d commands followed the vote: there was something to release", n)
			}
		}
	})
}

// TestUnlockTellsTheTruth: a release whose replies are lost, so that the client repeats it, is not "lost", and neither
// is one that no majority answers.
func TestUnlockTellsTheTruth(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		proxies := proxied(t, f)
		list := clients(t, proxies)
		faults := faulty(t, list)
		ev := &events{}
		l := newLocker(t, list, redlock.Options{Observer: ev.observer()})
		k := tryLock(t, l)
		synctest.Wait()
		for _, p := range proxies {
			p.DropReplies(1, isUnlock) // the client repeats it by itself
		}
		unlock(t, k)
		time.Sleep(time.Second) // the servers beyond a majority answer

		k = tryLock(t, l)
		synctest.Wait()
		for _, f := range faults {
			f.LoseReply(1, isUnlock) // the Locker repeats it
		}
		unlock(t, k)
		time.Sleep(time.Second) // the servers beyond a majority answer

		k = tryLock(t, l)
		synctest.Wait()
		down := errors.New("down")
		for _, f := range faults[:3] {
			f.Refuse(3, isUnlock, down)
		}
		if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrRedis) || errors.Is(err, stockade.ErrLockLost) {
			t.Errorf("Unlock: %v, want ErrRedis", err)
		}
		time.Sleep(time.Second)
		wantHolding(t, clients(t, f), "three servers were not reached", 0, 1, 2)
		if last := ev.told()[5]; last.Kind != stockade.LockReleased || last.Err == nil {
			t.Errorf("event %+v, want a failed release", last)
		}
	})
}

// TestUnlockForgottenByTheServers: they remember the last releases of a name only. A release whose replies were lost, and
// that comes again after others, is not "lost" for that.
func TestUnlockForgottenByTheServers(t *testing.T) {
	bubble(t, func(t *testing.T, f fleet) {
		list := clients(t, f)
		faults := faulty(t, list)
		l, other := newLocker(t, list, redlock.Options{}), newLocker(t, clients(t, f), redlock.Options{})
		unlock(t, tryLock(t, l)) // the servers know the scripts
		synctest.Wait()
		k := tryLock(t, l)
		synctest.Wait()
		for _, f := range faults {
			f.LoseReply(2, isUnlock)
		}
		var others sync.WaitGroup
		others.Go(func() {
			time.Sleep(time.Millisecond) // the Locker pauses before its third try
			for range 9 {
				unlock(t, tryLock(t, other))
				synctest.Wait()
			}
		})
		if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrRedis) || errors.Is(err, stockade.ErrLockLost) {
			t.Errorf("Unlock: %v, want ErrRedis", err)
		}
		others.Wait()
	})
}

// TestManyReleases: those that find a server busy wait for it, and are not left to their expiry.
func TestManyReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakes(t, 3)
		proxies := proxied(t, f)
		l := newLocker(t, clients(t, proxies), redlock.Options{})
		for i := range 300 {
			if _, err := l.TryLock(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range proxies {
			p.Delay(100 * time.Millisecond)
		}
		_ = l.Close()
		admins, left := clients(t, f), 0
		for i := range 300 {
			left += len(holding(t.Context(), admins, fmt.Sprintf("ns:R:m:{%d}", i)))
		}
		if left != 0 {
			t.Errorf("the servers have %d locks after Close", left)
		}
	})
}
