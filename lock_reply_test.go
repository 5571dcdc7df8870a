package stockade_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestLostReplies executes a step and loses its reply (I4): so that the caller cannot know, or so that the client repeats it.
func TestLostReplies(t *testing.T) {
	for _, way := range []struct {
		name string
		lose func(*redistest.Faults, *redistest.Proxy, redistest.Match)
	}{
		{"unknown to the caller", func(f *redistest.Faults, _ *redistest.Proxy, m redistest.Match) { f.LoseReply(1, m) }},
		{"repeated by the client", func(_ *redistest.Faults, p *redistest.Proxy, m redistest.Match) { p.DropReplies(1, m) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				admin := s.Client(t)
				faults, proxy := redistest.NewFaults(t), redistest.NewProxy(t, s)
				rdb := proxy.Client(t)
				rdb.AddHook(faults)
				l := newLocker(t, rdb, stockade.LockOptions{TTL: 3 * time.Second})
				unlock(t, tryLock(t, l)) // the server knows the scripts, the Locker the server's clock

				way.lose(faults, proxy, isTake)
				began := time.Now()
				k, err := l.Lock(t.Context(), "name")
				if err != nil {
					t.Fatalf("Lock: %v", err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the caller waited %v for its own lock", took)
				}
				token, _ := hex.DecodeString(k.Token())
				if got := admin.Get(t.Context(), lockKey("name")).Val(); got != string(token)+fmt.Sprintf("%016d", k.Fence()) {
					t.Errorf("Redis has %q, want the token and the fence %d", got, k.Fence())
				}

				way.lose(faults, proxy, isRenew)
				if err := k.Extend(t.Context(), 4*time.Second); err != nil && !errors.Is(err, stockade.ErrRedis) {
					t.Errorf("Extend: %v", err)
				}
				if k.Context().Err() != nil {
					t.Error("the lock is over")
				}

				way.lose(faults, proxy, isUnlock)
				unlock(t, k)
				if admin.Exists(t.Context(), lockKey("name")).Val() != 0 {
					t.Error("the lock was not released")
				}
			})
		})
	}
}

// TestShortExtend: an extension takes back nothing that was promised, and the watchdog follows it.
func TestShortExtend(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		proxy := redistest.NewProxy(t, s)
		l := newLocker(t, proxy.Client(t), stockade.LockOptions{})
		k := tryLock(t, l)
		if err := k.Extend(t.Context(), 30*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		proxy.Swallow(true)
		time.Sleep(5 * time.Second)
		if k.Context().Err() != nil {
			t.Error("the lock is over before its first validity")
		}
		proxy.Swallow(false)
		time.Sleep(10 * time.Second)
		if left := s.Mini.TTL(lockKey("name")); k.Context().Err() != nil || left > 30*time.Millisecond {
			t.Errorf("the lock lasts for %v (%v), want the watchdog to renew it to 30ms", left, context.Cause(k.Context()))
		}
		proxy.Swallow(true)
		began := time.Now()
		<-k.Context().Done()
		if took := time.Since(began); took > 30*time.Millisecond {
			t.Errorf("the context ended after %v", took)
		}
		proxy.Swallow(false)
		_ = k.Unlock(t.Context())
	})
}

// TestForgottenRelease: a release that was not answered is not called a loss when Redis has forgotten it.
func TestForgottenRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb, faults := s.Client(t), redistest.NewFaults(t)
		rdb.AddHook(faults)
		l, other := newLocker(t, rdb, stockade.LockOptions{}), newLocker(t, s.Client(t), stockade.LockOptions{})
		unlock(t, tryLock(t, l)) // the server knows the scripts
		k := tryLock(t, l)
		faults.LoseReply(1, isUnlock)
		time.AfterFunc(10*time.Millisecond, func() {
			for range 10 {
				unlock(t, tryLock(t, other))
			}
		})
		if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrRedis) || errors.Is(err, stockade.ErrLockLost) {
			t.Errorf("Unlock: %v, want ErrRedis and no loss", err)
		}
	})
}

// TestUnansweredTake: a lock that nobody knows of does not stay until it expires, in whatever order its request, the
// caller's end and the reply come.
func TestUnansweredTake(t *testing.T) {
	isFree := func(t *testing.T, s *redistest.FakeServer, after time.Duration) {
		t.Helper()
		time.Sleep(after)
		if s.Mini.Exists(lockKey("name")) {
			t.Error("an orphan lock is left")
		}
	}
	t.Run("reply lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *redistest.FakeServer) {
			rdb, faults := s.Client(t), redistest.NewFaults(t)
			rdb.AddHook(faults)
			l := newLocker(t, rdb, stockade.LockOptions{})
			unlock(t, tryLock(t, l))
			faults.LoseReply(1, isTake)
			if _, err := l.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrRedis) {
				t.Errorf("TryLock: %v, want ErrRedis", err)
			}
			isFree(t, s, time.Millisecond)
		})
	})
	// frozen runs a test with a Locker whose requests a proxy can hold up.
	frozen := func(t *testing.T, f func(t *testing.T, s *redistest.FakeServer, l *stockade.Locker, proxy *redistest.Proxy)) {
		bubble(t, func(t *testing.T, s *redistest.FakeServer) {
			proxy := redistest.NewProxy(t, s)
			l := newLocker(t, proxy.Client(t), stockade.LockOptions{})
			unlock(t, tryLock(t, l))
			f(t, s, l, proxy)
		})
	}
	t.Run("request and reply after the caller has left", func(t *testing.T) {
		frozen(t, func(t *testing.T, s *redistest.FakeServer, _ *stockade.Locker, proxy *redistest.Proxy) {
			// The release that is sent when the caller leaves fails: the one that follows the late reply counts.
			rdb, faults := proxy.Client(t), redistest.NewFaults(t)
			rdb.AddHook(faults)
			l := newLocker(t, rdb, stockade.LockOptions{})
			unlock(t, tryLock(t, l))
			faults.Refuse(1, isUnlock, errors.New("dial: refused"))
			proxy.Freeze()
			ctx, cancel := context.WithTimeout(t.Context(), 240*time.Millisecond)
			defer cancel()
			time.AfterFunc(10*time.Millisecond, cancel)
			if _, err := l.TryLock(ctx, "name"); !errors.Is(err, context.Canceled) {
				t.Errorf("TryLock: %v, want Canceled", err)
			}
			time.Sleep(100 * time.Millisecond) // within the time of the request
			proxy.Thaw()
			isFree(t, s, 100*time.Millisecond)
			if fences, _ := s.Mini.Get("ns:K:n:{name}"); len(fences) != 16+3*16 {
				t.Errorf("the request was not granted, or not released: %d bytes of fences", len(fences))
			}
		})
	})
	t.Run("reply after the caller has left", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *redistest.FakeServer) {
			rdb := s.Client(t)
			l := newLocker(t, rdb, stockade.LockOptions{})
			unlock(t, tryLock(t, l))
			rdb.AddHook(&afterStep{match: isTake, do: func() { time.Sleep(time.Second) }})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if _, err := l.TryLock(ctx, "name"); !errors.Is(err, context.Canceled) {
				t.Errorf("TryLock: %v, want Canceled", err)
			}
			isFree(t, s, time.Millisecond) // long before the reply
			if fences, _ := s.Mini.Get("ns:K:n:{name}"); len(fences) != 16+2*16 {
				t.Errorf("the request was not granted, or not released: %d bytes of fences", len(fences))
			}
		})
	})
	t.Run("request past its time", func(t *testing.T) {
		frozen(t, func(t *testing.T, s *redistest.FakeServer, l *stockade.Locker, proxy *redistest.Proxy) {
			before, _ := s.Mini.Get("ns:K:n:{name}")
			proxy.Freeze()
			if _, err := l.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrRedis) {
				t.Errorf("TryLock: %v, want ErrRedis", err)
			}
			time.Sleep(time.Second)
			proxy.Thaw()
			isFree(t, s, time.Millisecond)
			if after, _ := s.Mini.Get("ns:K:n:{name}"); after != before {
				t.Error("a late request was granted a lock")
			}
		})
	})
	t.Run("reply after the next question was granted", func(t *testing.T) {
		frozen(t, func(t *testing.T, s *redistest.FakeServer, l *stockade.Locker, proxy *redistest.Proxy) {
			proxy.Delay(400 * time.Millisecond)
			time.AfterFunc(200*time.Millisecond, func() { proxy.Delay(0) })
			k, err := l.Lock(t.Context(), "name")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if !s.Mini.Exists(lockKey("name")) {
				t.Error("the lock was taken for an orphan")
			}
			unlock(t, k)
		})
	})
}

// TestServerClockIsSet: the clock that bounds late requests follows the server's, wherever it jumps.
func TestServerClockIsSet(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb, log := logged(s.Client(t))
		l := newLocker(t, rdb, stockade.LockOptions{})
		unlock(t, tryLock(t, l)) // the server knows the scripts
		for _, jump := range []time.Duration{0, time.Hour, -time.Hour, 10 * time.Second} {
			s.Mini.SetTime(time.Now().Add(jump))
			before := log.count(isTake)
			unlock(t, tryLock(t, l))
			if n := log.count(isTake) - before; n > 2 {
				t.Errorf("%d questions after a jump of %v", n, jump)
			}
		}
		before := log.count(isTake)
		unlock(t, tryLock(t, l))
		if n := log.count(isTake) - before; n != 1 {
			t.Errorf("%d questions with a known clock, want 1", n)
		}

		// A jump that is small, but more than a short RedisTimeout, and that comes with a slow reply.
		proxy := redistest.NewProxy(t, s)
		quick := newLocker(t, proxy.Client(t), stockade.LockOptions{TTL: 20 * time.Millisecond})
		s.Mini.SetTime(time.Now())
		unlock(t, tryLock(t, quick))
		proxy.Delay(time.Millisecond)
		s.Mini.SetTime(time.Now().Add(9 * time.Millisecond))
		unlock(t, tryLock(t, quick))
	})
}
