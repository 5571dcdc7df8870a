package script

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func token(i int) string { return fmt.Sprintf("%016d", i) }

func (b *bench) take(token string) Taken {
	b.Helper()
	taken, err := Take(b.Context(), b.rdb, m, n, token, life, b.soon(), false)
	if err != nil {
		b.Fatal(err)
	}
	return taken
}

func (b *bench) unlock(token string) Status {
	b.Helper()
	r, err := Unlock(b.Context(), b.rdb, m, n, token, channel)
	if err != nil {
		b.Fatal(err)
	}
	return r.Status
}

func TestTake(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		first := b.take(tokenA)
		if first.Status != Granted || first.Fence < b.now()-life.Microseconds() {
			t.Fatalf("%+v, want a grant", first)
		}
		b.direct.PExpire(t.Context(), m, 100*time.Millisecond)
		if again := b.take(tokenA); again.Status != Granted || again.Fence != first.Fence {
			t.Errorf("own lock: %+v, want fence %d", again, first.Fence)
		}
		if ttl := b.direct.PTTL(t.Context(), m).Val(); ttl < life-time.Second {
			t.Errorf("lifetime of the own lock %v, want %v", ttl, life)
		}
		b.direct.PExpire(t.Context(), m, time.Hour)
		b.take(tokenA)
		if ttl := b.direct.PTTL(t.Context(), m).Val(); ttl < time.Hour-time.Second {
			t.Errorf("lifetime %v: a repeated take must not shorten it", ttl)
		}
		b.direct.PExpire(t.Context(), m, life)
		if other := b.take(tokenB); other.Status != Busy || other.PTTL <= 0 || other.PTTL > life {
			t.Errorf("another's lock: %+v, want busy", other)
		}
		if got, want := b.get(m), tokenA+Stamp(first.Fence); got != want {
			t.Errorf("lock %q, want %q: nobody waits", got, want)
		}
		for range 2 {
			if taken, err := Take(t.Context(), b.rdb, m, n, tokenB, life, b.soon(), true); taken.Status != Busy || err != nil {
				t.Errorf("another's lock: %+v, %v, want busy", taken, err)
			}
		}
		if got, want := b.get(m), tokenA+Stamp(first.Fence)+"+"; got != want {
			t.Errorf("lock %q, want %q: one mark", got, want)
		}
		if again := b.take(tokenA); again.Fence != first.Fence {
			t.Errorf("fence of an awaited lock %d, want %d", again.Fence, first.Fence)
		}
	})
}

// I2 Fences strictly increase, whether a lock is released or expires, and over a flush.
func TestFencesIncrease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		last := int64(0)
		for i := range 60 {
			taken := b.take(token(i))
			if taken.Status != Granted || taken.Fence <= last {
				t.Fatalf("take %d: %+v, want a fence above %d", i, taken, last)
			}
			last = taken.Fence
			switch i % 3 {
			case 0:
				b.unlock(token(i))
			case 1:
				b.direct.Del(t.Context(), m) // as its expiry does
			case 2:
				time.Sleep(time.Millisecond) // time goes on while a server loses its data
				b.direct.FlushAll(t.Context())
			}
		}
	})
}

// I2 The counter lifts a fence over a clock that stands still or goes back.
func TestFencesIncreaseWithoutTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		b := newBench(t, s)
		start := time.Now()
		last := int64(0)
		for i := range 50 {
			if i == 25 {
				s.Mini.SetTime(start.Add(-time.Hour))
			}
			taken := b.take(token(i))
			if taken.Status != Granted || taken.Fence <= last {
				t.Fatalf("take %d: %+v, want a fence above %d", i, taken, last)
			}
			last = taken.Fence
			b.unlock(token(i))
		}
	})
}

// I4 A delayed copy of a take whose lock is released already must not take it again.
func TestDelayedTakeAfterItsUnlock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		for i := range 8 {
			b.take(token(i))
			b.unlock(token(i))
		}
		for i := range 8 {
			if taken := b.take(token(i)); taken.Status != TooLate {
				t.Errorf("copy of take %d: %+v, want too late", i, taken)
			}
		}
		if all := b.snapshot(); len(all) != 1 {
			t.Errorf("state %v, want the fences alone", all)
		}
		if taken := b.take(tokenB); taken.Status != Granted {
			t.Errorf("a token of its own: %+v, want a grant", taken)
		}
	})
}

func TestUnlockTwice(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		b.take(tokenA)
		for range 2 {
			if got := b.unlock(tokenA); got != Held {
				t.Errorf("status %d, want released", got)
			}
		}
		second := b.take(tokenB)
		if got := b.unlock(tokenA); got != Held {
			t.Errorf("repeated while another holds the lock: status %d, want released", got)
		}
		if got := b.get(m); got != tokenB+Stamp(second.Fence) {
			t.Errorf("lock %q, want the other's", got)
		}
		for i := range 7 {
			b.direct.Del(t.Context(), m)
			b.take(token(i))
			b.unlock(token(i))
		}
		if got := b.unlock(tokenA); got != Held {
			t.Errorf("repeated after seven others: status %d, want released", got)
		}
		b.take(token(7))
		b.unlock(token(7))
		if got := b.unlock(tokenA); got != Lost {
			t.Errorf("repeated after eight others: status %d: the memory is bounded", got)
		}
		if size := len(b.get(n)); size != StampLen+8*TokenLen {
			t.Errorf("fences take %d bytes", size)
		}
	})
}

func TestUnlockOfALockThatExpired(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		b.take(tokenA)
		b.direct.Del(t.Context(), m)
		before := b.snapshot()
		if got := b.unlock(tokenA); got != Lost {
			t.Errorf("status %d, want lost", got)
		}
		b.take(tokenB)
		if got := b.unlock(tokenA); got != Lost {
			t.Errorf("another holds it: status %d, want lost", got)
		}
		b.direct.Del(t.Context(), m)
		if after := b.snapshot(); len(before) != len(after) {
			t.Errorf("state %v, want %v", after, before)
		}
	})
}

// The fences may be lost while the lock is held: it still is released, and its fence is not used again.
func TestUnlockAfterTheFencesAreLost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		first := b.take(tokenA)
		b.direct.Del(t.Context(), n)
		if got := b.unlock(tokenA); got != Held {
			t.Errorf("status %d, want released", got)
		}
		if got := b.unlock(tokenA); got != Held {
			t.Errorf("repeated: status %d, want released", got)
		}
		if second := b.take(tokenB); second.Fence <= first.Fence {
			t.Errorf("fence %d after %d", second.Fence, first.Fence)
		}
		b.snapshot()
	})
}

// A lock lives on when it is extended beyond the life of its fences.
func TestFencesOfALongLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, redistest.Fake(t))
		first := b.take(tokenA)
		for range 30 {
			if r, err := Do(t.Context(), b.rdb, Renew(m, tokenA, 2*time.Hour)); r.Status != Held || err != nil {
				t.Fatalf("renew: %v, %v", r, err)
			}
			time.Sleep(time.Hour)
		}
		if again := b.take(tokenA); again.Fence != first.Fence {
			t.Errorf("fence %d, want %d", again.Fence, first.Fence)
		}
		b.unlock(tokenA)
		if second := b.take(tokenB); second.Fence <= first.Fence {
			t.Errorf("fence %d after %d", second.Fence, first.Fence)
		}
	})
}
