package stockade

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// unwatched returns a lock without a watchdog, whose server does not answer.
func unwatched(t *testing.T) *Lock {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := NewLocker(rdb, LockOptions{Prefix: "ns", RedisTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	k := l.newLock(t.Context(), "name")
	k.ctx = lockContext{k.ctx, k} // as hold does
	close(k.watched)
	return k
}

// TestUnlockLooksAtTheTime: nor does Unlock need the watchdog to know that the lock was lost.
func TestUnlockLooksAtTheTime(t *testing.T) {
	k := unwatched(t)
	k.granted(time.Now().Add(-validity(k.ttl)), 1)
	if err := k.Unlock(t.Context()); err != ErrLockLost || context.Cause(k.Context()) != ErrLockLost {
		t.Errorf("Unlock of a lock that has expired: %v, cause %v, want ErrLockLost", err, context.Cause(k.Context()))
	}
}

// TestContextLooksAtTheTime: without any watchdog the context ends at the local validity for whoever asks (I5).
func TestContextLooksAtTheTime(t *testing.T) {
	k := unwatched(t)
	child, cancel := context.WithCancel(k.Context())
	defer cancel()
	if !k.granted(time.Now(), 1) || k.Context().Err() != nil || context.Cause(k.Context()) != nil {
		t.Fatal("the lock is over at once")
	}
	if k.granted(time.Now().Add(-validity(k.ttl)), 1) {
		t.Error("an answer after the validity counts")
	}
	for range 2 {
		if err, cause := k.Context().Err(), context.Cause(k.Context()); err != context.Canceled || !errors.Is(cause, ErrLockLost) {
			t.Errorf("the context ended with %v, cause %v, want Canceled and ErrLockLost", err, cause)
		}
	}
	if child.Err() == nil {
		t.Error("a context derived from it lives on")
	}
}
