package stockade

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// An answer that comes when the lock may have expired is no grant (I5).
func TestAGrantThatComesTooLate(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := NewLocker(rdb, LockOptions{Prefix: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	k := l.newLock(t.Context(), "name")
	want(t, "late answer counts", k.granted(time.Now().Add(-validity(defaultLockTTL)), 1), false)
	want(t, "answer counts", k.granted(time.Now(), 1), true)
	k.giveUp()
}
