package stockade_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestFrozenRedis holds I8: with a client that waits for 20 s, every call ends with its context.
func TestFrozenRedis(t *testing.T) {
	s := redistest.NewReal(t)
	l := newLocker(t, s.Client(t), stockade.LockOptions{TTL: 4 * time.Second})
	k := tryLock(t, l)
	s.Freeze(t)
	for _, test := range []struct {
		name string
		call func(ctx context.Context) error
		want error
	}{
		{"TryLock", func(ctx context.Context) error { _, err := l.TryLock(ctx, "other"); return err }, context.DeadlineExceeded},
		{"Lock", func(ctx context.Context) error { _, err := l.Lock(ctx, "other"); return err }, stockade.ErrLocked},
		{"Do", func(ctx context.Context) error { return l.Do(ctx, "other", nil) }, context.DeadlineExceeded},
		{"Extend", func(ctx context.Context) error { return k.Extend(ctx, time.Minute) }, context.DeadlineExceeded},
		{"Unlock", func(ctx context.Context) error { return k.Unlock(ctx) }, context.DeadlineExceeded},
		{"TryLock without a deadline", func(context.Context) error { _, err := l.TryLock(t.Context(), "other"); return err }, stockade.ErrRedis},
		{"Unlock without a context", func(ctx context.Context) error {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			return k.Unlock(ended)
		}, stockade.ErrRedis},
	} {
		limit := 250 * time.Millisecond
		if strings.Contains(test.name, "without") {
			limit = 300 * time.Millisecond
		}
		took := time.Hour
		for range 3 { // the best counts: the machine may be busy
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			began := time.Now()
			err := test.call(ctx)
			took = min(took, time.Since(began))
			cancel()
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", test.name, err, test.want)
			}
			if took <= limit {
				break
			}
		}
		if took > limit {
			t.Errorf("%s took %v", test.name, took)
		}
	}
	s.Thaw(t)
	if _, err := l.Lock(t.Context(), "name"); err != nil {
		t.Errorf("Lock after the thaw: %v", err)
	}
}

// TestUnlockInAnOutage: the release is repeated, and goes on when the caller has left.
func TestUnlockInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		proxy := redistest.NewProxy(t, s)
		ev := &events{}
		l := newLocker(t, proxy.Client(t), stockade.LockOptions{Observer: ev.observer()})
		k := tryLock(t, l)
		proxy.Swallow(true)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := k.Unlock(ctx); !errors.Is(err, stockade.ErrRedis) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Unlock: %v, want ErrRedis and DeadlineExceeded", err)
		}
		if k.Context().Err() == nil {
			t.Error("the context lives on")
		}
		time.Sleep(300 * time.Millisecond)
		proxy.Swallow(false)
		unlock(t, k)
		if s.Mini.Exists(lockKey("name")) {
			t.Error("the lock was not released")
		}

		k = tryLock(t, l)
		proxy.Swallow(true)
		began := time.Now()
		for range 2 {
			if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrRedis) {
				t.Errorf("Unlock: %v, want ErrRedis", err)
			}
		}
		if took := time.Since(began); took > 3*250*time.Millisecond+2*125*time.Millisecond {
			t.Errorf("Unlock took %v", took)
		}
		proxy.Swallow(false)
		if got := ev.kinds(); got != "taken released taken released" || ev.locks[3].Err == nil {
			t.Errorf("events %q, %+v", got, ev.locks)
		}
	})
}

// TestRefusal: what Redis will refuse again is returned at once.
func TestRefusal(t *testing.T) {
	s := redistest.NewReal(t)
	rdb := s.Client(t)
	ev := &events{}
	l := newLocker(t, rdb, stockade.LockOptions{Observer: ev.observer()})
	rdb.LPush(t.Context(), lockKey("name"), "x")
	for range 2 {
		if _, err := l.Lock(t.Context(), "name"); !errors.Is(err, stockade.ErrRedis) || errors.Is(err, stockade.ErrLocked) || !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("Lock: %v, want ErrRedis and WRONGTYPE", err)
		}
		if _, err := l.TryLock(t.Context(), "name"); !errors.Is(err, stockade.ErrRedis) {
			t.Errorf("TryLock: %v, want ErrRedis", err)
		}
	}
	if rdb.LLen(t.Context(), lockKey("name")).Val() != 1 {
		t.Error("the other's key was touched")
	}
	if len(ev.redis) != 1 || !ev.redis[0].Misconfigured || ev.redis[0].Op != "take" {
		t.Errorf("events %+v, want one misconfiguration", ev.redis)
	}
	_ = rdb.Close()
	if _, err := l.Lock(t.Context(), "name"); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("Lock with a closed client: %v, want the client's ErrClosed", err)
	}
}

// TestPassingRefusal: what Redis refuses for a while is waited for.
func TestPassingRefusal(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := redistest.NewReal(t)
	rdb := s.Client(t)
	l := newLocker(t, rdb, stockade.LockOptions{})
	if err := rdb.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil { // READONLY, with no master
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		k, err := l.Lock(t.Context(), "name")
		if err == nil {
			err = k.Unlock(t.Context())
		}
		got <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the client repeats the request too
	defer cancel()
	if _, err := l.Lock(ctx, "other"); !errors.Is(err, stockade.ErrLocked) || !errors.Is(err, stockade.ErrRedis) {
		t.Errorf("Lock: %v, want ErrLocked and ErrRedis", err)
	}
	if err := rdb.ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("Lock: %v", err)
	}
}

// TestCloseInAnOutage returns when the client has, and leaves no goroutine (I10): the bubble would tell.
func TestCloseInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.FakeServer) {
		proxy := redistest.NewProxy(t, s)
		l := newLocker(t, proxy.Client(t), stockade.LockOptions{})
		k := tryLock(t, l)
		waiting := make(chan error, 1)
		go func() { _, err := l.Lock(t.Context(), "name"); waiting <- err }()
		time.Sleep(time.Second)
		proxy.Swallow(true)
		began := time.Now()
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("Close took %v", took)
		}
		if err := <-waiting; !errors.Is(err, stockade.ErrClosed) {
			t.Errorf("Lock: %v, want ErrClosed", err)
		}
		if err := k.Unlock(t.Context()); !errors.Is(err, stockade.ErrClosed) {
			t.Errorf("Unlock: %v, want ErrClosed", err)
		}
	})
}

// TestCloseMeetsLock: a lock that is granted while the Locker closes is refused or ended, and not left behind.
func TestCloseMeetsLock(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	for range 300 {
		l := newLocker(t, rdb, stockade.LockOptions{})
		var both sync.WaitGroup
		both.Go(func() {
			k, err := l.Lock(t.Context(), "name")
			if err == nil {
				<-k.Context().Done()
			} else if !errors.Is(err, stockade.ErrClosed) {
				t.Errorf("Lock: %v", err)
			}
		})
		both.Go(func() {
			for range rand.IntN(2000) {
				runtime.Gosched()
			}
			_ = l.Close()
			if rdb.Exists(t.Context(), lockKey("name")).Val() != 0 {
				t.Error("a lock is left after Close")
			}
		})
		both.Wait()
		rdb.Del(t.Context(), lockKey("name"))
	}
}
