package stockade_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestWaitersDoNotSpin: whatever happens to all that waiters wait for at once, they do not ask without pause (I12).
func TestWaitersDoNotSpin(t *testing.T) {
	const waiters, lasts = 40, 3 * time.Second
	again := func(every time.Duration, what func()) {
		for range lasts / every {
			what()
			time.Sleep(every)
		}
	}
	for name, happens := range map[string]func(s *redistest.FakeServer, p *redistest.Proxy){
		"nothing":         func(*redistest.FakeServer, *redistest.Proxy) { time.Sleep(lasts) },
		"new connections": func(_ *redistest.FakeServer, p *redistest.Proxy) { again(300*time.Millisecond, p.Cut) },
		"no server": func(_ *redistest.FakeServer, p *redistest.Proxy) {
			p.Refuse(true)
			p.Cut()
			time.Sleep(lasts)
			p.Refuse(false)
		},
		"passing refusals": func(s *redistest.FakeServer, _ *redistest.Proxy) {
			for _, answer := range []string{
				"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.", "MISCONF Redis is configured to save RDB snapshots",
			} {
				s.Mini.SetError(answer)
				time.Sleep(lasts / 3)
			}
			s.Mini.SetError("")
		},
		"messages": func(s *redistest.FakeServer, _ *redistest.Proxy) {
			again(300*time.Millisecond, func() {
				for i := range waiters {
					for range 10 {
						s.Mini.Publish("ns:unlock", "w"+lockKey(fmt.Sprint(i)))
					}
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *redistest.FakeServer) {
				t.Cleanup(func() { time.Sleep(2 * time.Second) }) // the client's attempts to connect end before the bubble
				p := redistest.NewProxy(t, s)
				rdb, log := logged(p.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })) // whose failures come at once
				l := newLocker(t, rdb, stockade.LockOptions{})
				unlock(t, tryLock(t, l)) // the server knows the scripts
				for i := range waiters {
					_ = s.Mini.Set(lockKey(fmt.Sprint(i)), strings.Repeat("x", 32))
					s.Mini.SetTTL(lockKey(fmt.Sprint(i)), time.Hour)
				}
				var callers sync.WaitGroup
				for i := range waiters {
					callers.Go(func() {
						k, err := l.Lock(t.Context(), fmt.Sprint(i))
						if err != nil {
							t.Errorf("Lock: %v", err)
							return
						}
						unlock(t, k)
					})
				}
				time.Sleep(2 * time.Second) // the polls have become slow
				before := log.count(isTake)
				happens(s, p)
				each := float64(log.count(isTake)-before) / waiters / lasts.Seconds()
				t.Logf("%.1f questions of each waiter in a second", each)
				if each > 15 {
					t.Errorf("%.1f questions of each waiter in a second", each)
				}
				s.Mini.FlushAll()
				callers.Wait()
			})
		})
	}
}

// TestWake: an unlock that is heard ends a wait at once.
func TestWake(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		ev := &events{}
		a, b := newLocker(t, s.Client(t), stockade.LockOptions{}), newLocker(t, s.Client(t), stockade.LockOptions{Observer: ev.observer()})
		held := tryLock(t, a)
		got := make(chan *stockade.Lock)
		go func() {
			k, err := b.Lock(t.Context(), "name")
			if err != nil {
				t.Errorf("Lock: %v", err)
			}
			got <- k
		}()
		time.Sleep(10*time.Second + 12345*time.Microsecond)
		released := time.Now()
		unlock(t, held)
		k := <-got
		if took := time.Since(released); took != 0 {
			t.Errorf("the waiter got the lock %v after the unlock", took)
		}
		unlock(t, k)
		if len(ev.waits) != 1 || ev.waits[0].Key != "name" || ev.waits[0].Wakes == 0 || ev.waits[0].Polls == 0 || ev.waits[0].Err != nil {
			t.Errorf("events %+v", ev.waits)
		}
	})
}

// TestUnlockBeforeTheWaiterListens: an unlock between the answer and the registration of a waiter is not waited for.
func TestUnlockBeforeTheWaiterListens(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		a := newLocker(t, s.Client(t), stockade.LockOptions{})
		held := tryLock(t, a)
		rdb := s.Client(t)
		b := newLocker(t, rdb, stockade.LockOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Lock(ctx, "name"); !errors.Is(err, stockade.ErrLocked) { // the subscription is live from here on
			t.Fatalf("Lock: %v", err)
		}
		rdb.AddHook(&afterStep{match: isTake, do: func() {
			unlock(t, held)
			time.Sleep(time.Millisecond) // the message goes by
		}})
		began := time.Now()
		k, err := b.Lock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Millisecond {
			t.Errorf("the waiter got the lock after %v", took)
		}
		unlock(t, k)
	})
}

// afterStep is a hook that does something once, between a step and its answer.
type afterStep struct {
	stepLog
	match redistest.Match
	do    func()
	once  sync.Once
}

func (a *afterStep) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		var command []string
		for _, arg := range cmd.Args() {
			command = append(command, fmt.Sprint(arg))
		}
		if err == nil && a.match(command) {
			a.once.Do(a.do)
		}
		return err
	}
}

// TestUnlockWaitsForTheRenewal: the release is not sent while a renewal is on its way.
func TestUnlockWaitsForTheRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb, log := logged(s.Client(t))
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		l := newLocker(t, rdb, stockade.LockOptions{})
		k := tryLock(t, l)
		reached, release := faults.Block(isRenew)
		<-reached
		released := make(chan error)
		go func() { released <- k.Unlock(t.Context()) }()
		time.Sleep(200 * time.Millisecond)
		if log.count(isUnlock) != 0 {
			t.Error("the release was sent before the renewal was answered")
		}
		if k.Context().Err() == nil {
			t.Error("the context did not end with Unlock")
		}
		release()
		if err := <-released; err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// TestNoWake: a lock that is gone without a message is found by polling.
func TestNoWake(t *testing.T) {
	const poll = 375*time.Millisecond + time.Millisecond // the longest
	for _, test := range []struct {
		name string
		gone func(s *redistest.FakeServer) (after time.Duration)
	}{
		{"message lost", func(s *redistest.FakeServer) time.Duration { s.Mini.Del(lockKey("name")); return 0 }},
		{"holder died", func(s *redistest.FakeServer) time.Duration { return s.Mini.TTL(lockKey("name")) }},
		{"flush", func(s *redistest.FakeServer) time.Duration { s.Mini.FlushAll(); return 0 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *redistest.FakeServer) {
				l := newLocker(t, s.Client(t), stockade.LockOptions{})
				_ = s.Mini.Set(lockKey("name"), strings.Repeat("x", 32))
				s.Mini.SetTTL(lockKey("name"), 30*time.Second)
				var since time.Time
				var after time.Duration
				var gone sync.WaitGroup
				gone.Go(func() {
					time.Sleep(10 * time.Second)
					since, after = time.Now(), test.gone(s)
				})
				k, err := l.Lock(t.Context(), "name")
				if err != nil {
					t.Fatal(err)
				}
				gone.Wait()
				if took := time.Since(since); took > after+poll {
					t.Errorf("the waiter got the lock after %v, want %v and a poll", took, after)
				}
				unlock(t, k)
			})
		})
	}
}

// TestWaitersShareOneQuestion: however many wait in a process, one of them asks Redis.
func TestWaitersShareOneQuestion(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		a := newLocker(t, s.Client(t), stockade.LockOptions{})
		rdb, log := logged(s.Client(t))
		b := newLocker(t, rdb, stockade.LockOptions{})
		held := tryLock(t, a)
		var order []int
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				k, err := b.Lock(t.Context(), "name")
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				order = append(order, i) // guarded by the lock
				unlock(t, k)
			})
			synctest.Wait()
		}
		for i := range 20 { // some leave while they wait in line
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			callers.Go(func() {
				defer cancel()
				if _, err := b.Lock(ctx, "name"); !errors.Is(err, stockade.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Lock: %v", err)
				}
				if time.Since(mustDeadline(ctx)) > 0 {
					t.Error("a waiter was held beyond its context")
				}
			})
		}
		time.Sleep(10 * time.Second)
		if n := log.count(isTake); n > 4+10*8 {
			t.Errorf("%d questions in 10 s", n)
		}
		before := log.count(isTake)
		unlock(t, held)
		callers.Wait()
		if n := log.count(isTake) - before; n > 400 {
			t.Errorf("%d questions for 100 turns", n)
		}
		if !slices.IsSorted(order) || len(order) != 100 {
			t.Errorf("turns were taken in the order %v", order)
		}
	})
}

func mustDeadline(ctx context.Context) time.Time {
	d, _ := ctx.Deadline()
	return d
}

// TestFirstInLineLeaves: the turn of one that gives up goes to the next.
func TestFirstInLineLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		a, b := newLocker(t, s.Client(t), stockade.LockOptions{}), newLocker(t, s.Client(t), stockade.LockOptions{})
		for range 50 {
			held := tryLock(t, a)
			ctx, cancel := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			for i := range 6 {
				callers.Go(func() {
					mine := t.Context()
					if i < 4 {
						mine = ctx
					}
					k, err := b.Lock(mine, "name")
					if err == nil {
						unlock(t, k)
					} else if i >= 4 {
						t.Errorf("Lock: %v", err)
					}
				})
			}
			time.Sleep(rand.N(time.Second))
			callers.Go(cancel)
			callers.Go(func() { unlock(t, held) })
			callers.Wait()
		}
	})
}
