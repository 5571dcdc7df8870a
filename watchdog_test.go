package stockade

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestContextLooksAtTheTime: without any watchdog the context ends at the local validity for whoever asks (I5).
func TestContextLooksAtTheTime(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	l, err := NewLocker(rdb, LockOptions{Prefix: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := l.newLock(t.Context(), "name")
	k.ctx = lockContext{k.ctx, k} // as hold does
	child, cancel := context.WithCancel(k.Context())
	defer cancel()
	if !k.granted(time.Now(), 1) || k.Context().Err() != nil || context.Cause(k.Context()) != nil {
		t.Fatal("the lock is over at once")
	}
	if k.granted(time.Now().Add(-validity(l.opts.TTL)), 1) {
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
