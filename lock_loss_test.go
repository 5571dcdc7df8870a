package stockade_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestOverrun: a holder that is cut off until its lock has expired, and comes back when another has it, knows that it has
// lost it, and touches nothing (I3). Its watchdog is gone, whether or not it unlocks.
func TestOverrun(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const ttl, locks = 400 * time.Millisecond, 20
		admin, proxy := s.Client(t), redistest.NewProxy(t, s)
		a := newLocker(t, proxy.Client(t), stockade.LockOptions{TTL: ttl})
		b := newLocker(t, s.Client(t), stockade.LockOptions{TTL: time.Minute})
		var over, next []*stockade.Lock
		for i := range locks {
			k, err := a.Lock(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			over = append(over, k)
		}
		proxy.Freeze()
		time.Sleep(ttl + ttl/2)
		for i := range locks {
			k, err := b.Lock(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			next = append(next, k)
		}
		proxy.Thaw()
		for i, k := range over {
			if k.Context().Err() == nil || !errors.Is(context.Cause(k.Context()), stockade.ErrLockLost) {
				t.Errorf("the context has ended with %v, cause %v", k.Context().Err(), context.Cause(k.Context()))
			}
			if i%2 == 0 {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if err := k.Unlock(ctx); !errors.Is(err, stockade.ErrLockLost) {
				t.Errorf("Unlock: %v, want ErrLockLost", err)
			}
			cancel()
		}
		time.Sleep(ttl) // until what was held has arrived
		for i, k := range next {
			value, left := admin.Get(t.Context(), lockKey(fmt.Sprint(i))).Val(), admin.PTTL(t.Context(), lockKey(fmt.Sprint(i))).Val()
			if !strings.HasSuffix(value, fmt.Sprint(k.Fence())) || left < 50*time.Second || k.Context().Err() != nil {
				t.Errorf("the next owner's lock is %q for %v", value, left)
			}
			if k.Fence() <= over[i].Fence() {
				t.Errorf("fence %d after %d", k.Fence(), over[i].Fence())
			}
		}
		if n := watchdogs(); n != locks {
			t.Errorf("%d watchdogs, want one for each of the %d locks that are held", n, locks)
		}
		for _, k := range next {
			unlock(t, k)
		}
	})
}

// watchdogs counts those that run.
func watchdogs() int {
	buf := make([]byte, 4<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "/stockade.(*Lock).watch(")
}

// TestEvictedLocks: a server that is full takes locks and fences like all else. The holder learns of it before its lock
// would have expired, does not take it again, and the next fence is larger all the same (I2).
func TestEvictedLocks(t *testing.T) {
	const ttl = 1200 * time.Millisecond
	s := redistest.NewReal(t)
	admin := s.Client(t)
	filler := make([]byte, 100_000)
	for _, policy := range []string{
		"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "noeviction",
	} {
		admin.FlushAll(t.Context())
		l := newLocker(t, s.Client(t), stockade.LockOptions{TTL: ttl})
		k := tryLock(t, l)
		for key, value := range map[string]string{"maxmemory": "6mb", "maxmemory-policy": policy} {
			if err := admin.ConfigSet(t.Context(), key, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for i := range 300 {
			err := admin.Set(t.Context(), fmt.Sprint("filler", i), filler, time.Minute).Err()
			if err != nil && policy != "noeviction" {
				t.Fatal(err)
			}
		}
		switch held := admin.Exists(t.Context(), lockKey("name")).Val() == 1; {
		case held && policy == "volatile-ttl":
			t.Error("the lock was not evicted: the test shows nothing")
		case held:
			// A full server still renews and releases.
			time.Sleep(ttl)
			if k.Context().Err() != nil && admin.Exists(t.Context(), lockKey("name")).Val() == 1 {
				t.Errorf("%s: the lock is held, and its context has ended: %v", policy, context.Cause(k.Context()))
			}
			if err := k.Unlock(t.Context()); err != nil && !errors.Is(err, stockade.ErrLockLost) {
				t.Errorf("%s: Unlock: %v", policy, err)
			}
		default:
			select {
			case <-k.Context().Done():
			case <-time.After(2 * ttl):
			}
			if took := time.Since(began); took > ttl {
				t.Errorf("%s: the holder learnt of it after %v", policy, took)
			}
			if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) || !errors.Is(context.Cause(k.Context()), stockade.ErrLockLost) {
				t.Errorf("%s: Unlock: %v, the context %v, want ErrLockLost", policy, err, context.Cause(k.Context()))
			}
		}
		if n := admin.Exists(t.Context(), lockKey("name")).Val(); n != 0 {
			t.Errorf("%s: the lock is there again, or still", policy)
		}
		admin.ConfigSet(t.Context(), "maxmemory", "0")
		next := tryLock(t, l)
		if next.Fence() <= k.Fence() {
			t.Errorf("%s: fence %d after %d", policy, next.Fence(), k.Fence())
		}
		unlock(t, next)
	}
}
