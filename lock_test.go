package stockade_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/locktest"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestLock is the suite of every lock, on both servers.
func TestLock(t *testing.T) {
	const ttl = 200 * time.Millisecond
	locktest.Run(t, func(t *testing.T, test func(*testing.T, locktest.Servers)) {
		redistest.Each(t, func(t *testing.T, s redistest.Server) {
			admin := s.Client(t)
			test(t, locktest.Servers{
				TTL: ttl,
				New: func(t *testing.T) locktest.Locker {
					return tested{newLocker(t, s.Client(t), stockade.LockOptions{TTL: ttl}), t, new(atomic.Int64)}
				},
				Lose: func(t *testing.T) {
					if err := admin.FlushAll(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
				},
				Free: func(name string) bool { return admin.Exists(t.Context(), lockKey(name)).Val() == 0 },
			})
		})
	})
}

// tested shows a Locker as the suite wants it.
type tested struct {
	*stockade.Locker
	t    *testing.T
	last *atomic.Int64 // fence of Do
}

func (l tested) TryLock(ctx context.Context, name string) (locktest.Lock, error) {
	return shown(l.Locker.TryLock(ctx, name))
}

func (l tested) Lock(ctx context.Context, name string) (locktest.Lock, error) {
	return shown(l.Locker.Lock(ctx, name))
}

// Do checks what the suite cannot see, since not all locks have it: the fence that fn is given grows.
func (l tested) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return l.Locker.Do(ctx, name, func(ctx context.Context, fence int64) error {
		if last := l.last.Swap(fence); fence <= last {
			l.t.Errorf("fence %d after %d", fence, last)
		}
		return fn(ctx)
	})
}

// The suite checks the fences of locks that are Fenced.
var _ locktest.Fenced = (*stockade.Lock)(nil)

func shown(k *stockade.Lock, err error) (locktest.Lock, error) {
	if err != nil {
		return nil, err
	}
	return k, nil
}

func newLocker(t testing.TB, rdb redis.UniversalClient, opts stockade.LockOptions) *stockade.Locker {
	t.Helper()
	if opts.Prefix == "" {
		opts.Prefix = "ns"
	}
	l, err := stockade.NewLocker(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func lockKey(name string) string { return "ns:K:m:{" + name + "}" }

func tryLock(t testing.TB, l *stockade.Locker) *stockade.Lock {
	t.Helper()
	k, err := l.TryLock(t.Context(), "name")
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return k
}

func unlock(t testing.TB, k *stockade.Lock) {
	t.Helper()
	if err := k.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// The steps of a lock, told apart by the number of their keys and arguments.
func isTake(command []string) bool   { return isStep(command, 2, 4) }
func isUnlock(command []string) bool { return isStep(command, 2, 2) }
func isRenew(command []string) bool  { return isStep(command, 1, 2) }

func isStep(command []string, keys, args int) bool {
	return (command[0] == "evalsha" || command[0] == "eval") && command[2] == strconv.Itoa(keys) && len(command) == 3+keys+args
}

// stepLog is a hook that writes down the steps that a client sends.
type stepLog struct {
	mu    sync.Mutex
	steps [][]string
}

func (s *stepLog) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stepLog) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *stepLog) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var command []string
		for _, arg := range cmd.Args() {
			command = append(command, fmt.Sprint(arg))
		}
		s.mu.Lock()
		s.steps = append(s.steps, command)
		s.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (s *stepLog) count(match redistest.Match) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, command := range s.steps {
		if match(command) {
			n++
		}
	}
	return n
}

func logged(rdb *redis.Client) (*redis.Client, *stepLog) {
	s := &stepLog{}
	rdb.AddHook(s)
	return rdb, s
}

// events gathers what an Observer is told.
type events struct {
	mu    sync.Mutex
	locks []stockade.LockEvent
	waits []stockade.WaitEvent
	redis []stockade.RedisEvent
}

func (e *events) observer() stockade.Observer {
	return stockade.Observer{
		Lock:  func(ev stockade.LockEvent) { e.mu.Lock(); defer e.mu.Unlock(); e.locks = append(e.locks, ev) },
		Wait:  func(ev stockade.WaitEvent) { e.mu.Lock(); defer e.mu.Unlock(); e.waits = append(e.waits, ev) },
		Redis: func(ev stockade.RedisEvent) { e.mu.Lock(); defer e.mu.Unlock(); e.redis = append(e.redis, ev) },
	}
}

func (e *events) kinds() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var kinds []string
	for _, ev := range e.locks {
		kinds = append(kinds, ev.Kind.String())
	}
	return strings.Join(kinds, " ")
}

// bubble runs a test on the fake, in a bubble.
func bubble(t *testing.T, f func(t *testing.T, s *redistest.FakeServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, redistest.Fake(t)) })
}

func TestNewLockerRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	var none *redis.Client
	for _, test := range []struct {
		rdb  redis.UniversalClient
		opts stockade.LockOptions
		want string
	}{
		{nil, stockade.LockOptions{Prefix: "ns"}, "client is <nil>"},
		{none, stockade.LockOptions{Prefix: "ns"}, "client is"},
		{ring, stockade.LockOptions{Prefix: "ns"}, "Ring"},
		{rdb, stockade.LockOptions{}, `Prefix is ""`},
		{rdb, stockade.LockOptions{Prefix: "a{b"}, `Prefix is "a{b"`},
		{rdb, stockade.LockOptions{Prefix: "ns", TTL: -1}, "TTL is -1ns"},
		{rdb, stockade.LockOptions{Prefix: "ns", TTL: 1}, "TTL is 1ns"},
		{rdb, stockade.LockOptions{Prefix: "ns", TTL: 500 * time.Microsecond}, "TTL is 500µs"},
		{rdb, stockade.LockOptions{Prefix: "ns", TTL: 999 * time.Microsecond}, "TTL is 999µs"},
		{rdb, stockade.LockOptions{Prefix: "ns", TTL: 1500 * time.Microsecond}, "TTL is 1.5ms"},
		{rdb, stockade.LockOptions{Prefix: "ns", RedisTimeout: -1}, "RedisTimeout is -1ns"},
		{rdb, stockade.LockOptions{Prefix: "ns", TTL: time.Second, RedisTimeout: 251 * time.Millisecond}, "RedisTimeout is 251ms"},
	} {
		l, err := stockade.NewLocker(test.rdb, test.opts)
		if l != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("NewLocker(%T, %+v): %v, want an error that says %q", test.rdb, test.opts, err, test.want)
		}
	}
}

// TestLockTTL: what is asked for is what Redis keeps, never less than a ms and never for ever (I9).
func TestLockTTL(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		for _, ttl := range []time.Duration{0, 10 * time.Millisecond, 50500 * time.Microsecond, 1500 * time.Millisecond, math.MaxInt64} {
			l := newLocker(t, rdb, stockade.LockOptions{TTL: ttl})
			k, err := l.Lock(t.Context(), "name")
			if err != nil {
				t.Fatalf("Lock for %v: %v", ttl, err)
			}
			want := ttl
			if ttl == 0 {
				want = 10 * time.Second
			}
			for _, key := range []string{lockKey("name"), "ns:K:n:{name}"} {
				if key != lockKey("name") {
					want = max(want, 24*time.Hour)
				}
				if got := rdb.PTTL(t.Context(), key).Val(); got < want/2 || got > want {
					if got == -2 && ttl <= 10*time.Millisecond {
						continue // a slow machine
					}
					t.Errorf("PTTL of %s is %v, want at most and about %v", key, got, want)
				}
			}
			if ttl > 10*time.Millisecond && k.Context().Err() != nil {
				t.Errorf("the lock for %v is over", ttl)
			}
			_ = k.Unlock(t.Context())
		}
	})
}

func TestNilLock(t *testing.T) {
	var k *stockade.Lock
	if k.Unlock(t.Context()) == nil || k.Extend(t.Context(), time.Second) == nil {
		t.Error("a nil lock was released or extended")
	}
}

// TestRandomHolders takes and releases many times, under watchdogs that are busy: two holders never meet, no renewal
// follows a release, and nothing is left.
func TestRandomHolders(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T, s *redistest.FakeServer) { testRandomHolders(t, s, 800, 40*time.Millisecond, 0.5) })
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		testRandomHolders(t, redistest.NewReal(t), 10000, 2*time.Second, 0.001)
	})
}

// testRandomHolders has 16 callers take locks that last ttl, some of them (long) until a renewal.
func testRandomHolders(t *testing.T, s redistest.Server, times int, ttl time.Duration, long float64) {
	const names = 16
	var holders [names]atomic.Int32
	var callers sync.WaitGroup
	var logs []*stepLog
	for range 4 {
		rdb, log := logged(s.Client(t))
		logs = append(logs, log)
		l := newLocker(t, rdb, stockade.LockOptions{TTL: ttl})
		for range 4 {
			callers.Go(func() {
				for range times / 16 {
					i := rand.IntN(names)
					k, err := l.Lock(t.Context(), strconv.Itoa(i))
					if err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					if holders[i].Add(1) != 1 {
						t.Error("two holders")
					}
					if rand.Float64() < long {
						time.Sleep(ttl/3 + rand.N(ttl/20)) // about when the renewal is due
					}
					holders[i].Add(-1)
					// On a busy machine an answer may not come in time.
					if err := k.Unlock(t.Context()); err != nil && !errors.Is(err, stockade.ErrRedis) {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
	}
	callers.Wait()
	renewals := 0
	for _, log := range logs {
		released := map[string]bool{}
		for _, step := range log.steps {
			switch {
			case isUnlock(step):
				released[step[5]] = true
			case isRenew(step):
				renewals++
				if released[step[4]] {
					t.Error("a renewal after the release")
				}
			}
		}
	}
	if renewals == 0 {
		t.Error("no renewal: the test shows nothing")
	}
	rdb := s.Client(t)
	for i := range names {
		if rdb.Exists(t.Context(), lockKey(strconv.Itoa(i))).Val() != 0 {
			t.Errorf("lock %d is left", i)
		}
	}
}

// TestManyLocks: an application that holds many locks gives each its renewals.
func TestManyLocks(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		l := newLocker(t, s.Client(t), stockade.LockOptions{})
		var locks []*stockade.Lock
		for i := range 100 {
			k, err := l.Lock(t.Context(), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, k)
		}
		time.Sleep(30 * time.Second)
		for _, k := range locks {
			unlock(t, k)
		}
	})
}

// TestTokensAreRandom: 16 bytes, as Redis has them.
func TestTokensAreRandom(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		l := newLocker(t, s.Client(t), stockade.LockOptions{})
		k := tryLock(t, l)
		value, _ := s.Mini.Get(lockKey("name"))
		token, err := hex.DecodeString(k.Token())
		if err != nil || len(token) != 16 || !bytes.HasPrefix([]byte(value), token) {
			t.Errorf("token %q, Redis has %q", k.Token(), value)
		}
		unlock(t, k)
	})
}
