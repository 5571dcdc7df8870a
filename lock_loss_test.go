package stockade_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

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
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "/internal/held.(*Lock).watch(")
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

// TestFlush ends a lock within one interval of the watchdog.
func TestFlush(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		ev := &events{}
		l := newLocker(t, s.Client(t), stockade.LockOptions{Observer: ev.observer()})
		k := tryLock(t, l)
		time.Sleep(time.Minute)
		s.Mini.FlushAll()
		flushed := time.Now()
		<-k.Context().Done()
		if took := time.Since(flushed); took > 10*time.Second/3 {
			t.Errorf("the context ended %v after the flush", took)
		}
		if !errors.Is(context.Cause(k.Context()), stockade.ErrLockLost) {
			t.Errorf("cause %v", context.Cause(k.Context()))
		}
		if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) {
			t.Errorf("Unlock: %v", err)
		}
		if got := ev.kinds(); got != "taken lost" {
			t.Errorf("events %q", got)
		}
	})
}

// TestStolenLock: a watchdog that finds another's lock stops, and touches nothing (I3).
func TestStolenLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb, log := logged(s.Client(t))
		l := newLocker(t, rdb, stockade.LockOptions{})
		k := tryLock(t, l)
		time.Sleep(20 * time.Second)
		before := log.count(isRenew)
		_ = s.Mini.Set(lockKey("name"), "stolen")
		s.Mini.SetTTL(lockKey("name"), time.Hour)
		<-k.Context().Done()
		time.Sleep(10 * time.Minute)
		if n := log.count(isRenew) - before; n != 1 {
			t.Errorf("%d renewals of a stolen lock, want 1", n)
		}
		if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) {
			t.Errorf("Unlock: %v", err)
		}
		got, _ := s.Mini.Get(lockKey("name"))
		if left := s.Mini.TTL(lockKey("name")); got != "stolen" || left != 50*time.Minute-10*time.Second/3 && left > 50*time.Minute {
			t.Errorf("the thief's lock is %q for %v", got, left)
		}
	})
}

// TestBlackHole holds I5: the context ends at the local validity, before the lock expires, though nothing answers.
func TestBlackHole(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		const ttl = 10 * time.Second
		proxy := redistest.NewProxy(t, s)
		l := newLocker(t, proxy.Client(t), stockade.LockOptions{})
		k := tryLock(t, l)
		began := time.Now()
		time.Sleep(ttl/3 + time.Millisecond) // renewed once
		proxy.Swallow(true)
		<-k.Context().Done()
		want := ttl/3 + ttl - ttl/100 - 2*time.Millisecond
		if took := time.Since(began); took != want {
			t.Errorf("the context ended after %v, want %v", took, want)
		}
		if left := s.Mini.TTL(lockKey("name")); left <= 0 {
			t.Errorf("the lock has expired already")
		}
		if !errors.Is(context.Cause(k.Context()), stockade.ErrLockLost) {
			t.Errorf("cause %v", context.Cause(k.Context()))
		}
		proxy.Swallow(false)
		if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrLockLost) {
			t.Errorf("Unlock: %v, want ErrLockLost", err)
		}
		if s.Mini.Exists(lockKey("name")) {
			t.Error("what Redis still had was not released")
		}
	})
}

// TestOutage: a failed renewal is repeated quickly, and an outage that is shorter than the validity costs nothing.
func TestOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		ev := &events{}
		proxy := redistest.NewProxy(t, s)
		l := newLocker(t, proxy.Client(t), stockade.LockOptions{Observer: ev.observer()})
		k := tryLock(t, l)
		for range 10 {
			proxy.Swallow(true)
			time.Sleep(5 * time.Second)
			proxy.Swallow(false)
			time.Sleep(time.Second)
			if left := s.Mini.TTL(lockKey("name")); left < 9*time.Second {
				t.Errorf("the lock lasts %v a second after the outage", left)
			}
		}
		if k.Context().Err() != nil {
			t.Error("the lock is over")
		}
		unlock(t, k)
		if len(ev.redis) == 0 || ev.redis[0].Op != "renew" || ev.redis[0].Misconfigured {
			t.Errorf("events %+v, want failed renewals", ev.redis)
		}
	})
}

// TestStoppedProcess holds I5 for a process that is stopped beyond its lock and continued: it sees the end at once.
func TestStoppedProcess(t *testing.T) {
	const ttl = 400 * time.Millisecond
	if addr := os.Getenv("STOCKADE_TEST_STOPPED"); addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		l := newLocker(t, rdb, stockade.LockOptions{TTL: ttl})
		k := tryLock(t, l)
		since := 0 // looks at the context after a stop
		last := time.Now()
		fmt.Println("held")
		for {
			before := time.Now()
			err := k.Context().Err() // at once after the stop, before timers and other goroutines
			after := time.Now()
			switch {
			case before.Sub(last) > ttl/2:
				since = 0
			case after.Sub(before) > ttl/2: // stopped in the middle: the next look counts
				since = -1
			default:
				since++
			}
			if err != nil {
				fmt.Println("over:", max(since, 0), err, context.Cause(k.Context()))
				return
			}
			last = after
		}
	}
	s := redistest.NewReal(t)
	child := exec.Command(os.Args[0], "-test.run=^TestStoppedProcess$", "-test.v")
	child.Env = append(os.Environ(), "STOCKADE_TEST_STOPPED="+s.Addr())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "held":
			if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			// Another holder shows that the lock has expired.
			other := newLocker(t, s.Client(t), stockade.LockOptions{TTL: ttl})
			k, err := other.Lock(t.Context(), "name")
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			defer func() { unlock(t, k) }()
		case strings.HasPrefix(line, "over:"):
			if want := "over: 0 context canceled stockade: lock lost"; line != want {
				t.Errorf("the child said %q, want %q", line, want)
			}
			return
		}
	}
	t.Error("the child did not answer")
}

// TestChildContexts: contexts derived from a lock's cost no goroutine.
func TestChildContexts(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		k := tryLock(t, newLocker(t, s.Client(t), stockade.LockOptions{}))
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 100 {
			child, cancel := context.WithCancel(k.Context())
			defer cancel()
			defer context.AfterFunc(child, func() {})()
		}
		if n := runtime.NumGoroutine() - before; n > 10 {
			t.Errorf("%d goroutines for 100 contexts", n)
		}
		unlock(t, k)
	})
}
