package script

import (
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestAcquireGivesTheValue(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		value := b.value()
		b.put(k.Value, value)
		other, same, short := head(entry(tokenB, 1, 2, "")), head(value), value[:20]
		for _, c := range []struct {
			name string
			seen *string
			want Status
		}{
			{"nothing seen", nil, Hit},
			{"another head seen", &other, Hit},
			{"part of the head seen", &short, Hit},
			{"this head seen", &same, Granted},
		} {
			a := b.acquire(tokenA, c.seen, "")
			if a.Status != c.want {
				t.Errorf("%s: status %d, want %d", c.name, a.Status, c.want)
			}
			if a.Status == Hit && (!a.Inline || a.Value != value) {
				t.Errorf("%s: inline %t, value %q", c.name, a.Inline, a.Value)
			}
		}
		b.direct.Del(t.Context(), k.Value, k.Lease)
		if a := b.acquire(tokenA, &same, ""); a.Status != Granted {
			t.Errorf("a value that is gone since it was seen: status %d, want a grant", a.Status)
		}
	})
}

// What cannot be decoded is shorter than a head, or empty: it is overwritten by the one who saw it.
func TestAcquireOverAnUndecodableValue(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		for _, value := range []string{"", "x", strings.Repeat("x", HeadLen), strings.Repeat("x", 100)} {
			b.direct.FlushAll(t.Context())
			b.put(k.Value, value)
			if a := b.acquire(tokenA, nil, ""); a.Status != Hit || !a.Inline || a.Value != value {
				t.Errorf("%q not seen: %+v, want a hit", value, a)
			}
			seen := value[:min(len(value), HeadLen)]
			a := b.acquire(tokenA, &seen, "")
			if a.Status != Granted {
				t.Errorf("%q seen: status %d, want a grant", value, a.Status)
			}
			b.answers(b.commits(a.Stamp), b.rdb, Stored)
		}
	})
}

func TestAcquireDoesNotCarryLargeValues(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		for _, size := range []int{MaxInline, MaxInline + 1} {
			value := entry(tokenB, 1, 2, strings.Repeat("x", size-HeadLen))
			b.put(k.Value, value)
			a := b.acquire(tokenA, nil, "")
			if inline := size <= MaxInline; a.Status != Hit || a.Inline != inline || (a.Value == value) != inline {
				t.Errorf("%d bytes: status %d, inline %t, %d bytes", size, a.Status, a.Inline, len(a.Value))
			}
			seen := head(value)
			b.direct.Del(t.Context(), k.Lease)
			if a := b.acquire(tokenA, &seen, ""); a.Status != Granted {
				t.Errorf("%d bytes with the head seen: status %d, want a grant", size, a.Status)
			}
		}
	})
}

// I7 A failure holds until its time; for those who waited for its lease, or for an earlier one, beyond that.
func TestAcquireAfterAFailure(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		now := b.now()
		at := func(d time.Duration) string { return Stamp(now + d.Microseconds()) }
		const message = "no: 0000000000000009 +"
		for _, c := range []struct {
			name   string
			until  string
			waited string
			want   Status
		}{
			{"before its time", at(time.Minute), "", Failed},
			{"before its time, waited for a later lease", at(time.Minute), at(time.Second), Failed},
			{"after its time", at(-time.Second), "", Granted},
			{"after its time, waited for its lease", at(-time.Second), at(-time.Minute), Failed},
			{"after its time, waited for an earlier lease", at(-time.Second), at(-time.Hour), Failed},
			{"after its time, waited for a later lease", at(-time.Second), at(-time.Minute + time.Microsecond), Granted},
		} {
			b.direct.FlushAll(t.Context())
			b.put(k.Failure, at(-time.Minute)+c.until+message)
			a := b.acquire(tokenA, nil, c.waited)
			if a.Status != c.want {
				t.Errorf("%s: status %d, want %d", c.name, a.Status, c.want)
			}
			if a.Status == Failed && (a.Stamp != at(-time.Minute) || a.Message != message) {
				t.Errorf("%s: stamp %s, message %q", c.name, a.Stamp, a.Message)
			}
		}
		for _, garbage := range []string{"", "x", strings.Repeat("x", 40)} {
			b.direct.FlushAll(t.Context())
			b.put(k.Failure, garbage)
			if a := b.acquire(tokenA, nil, ""); a.Status != Granted {
				t.Errorf("failure %q: status %d, want a grant", garbage, a.Status)
			}
		}
	})
}

// A value counts before a failure, and a failure before a lease.
func TestAcquireOrder(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		b.all()
		if a := b.acquire(tokenB, nil, ""); a.Status != Hit {
			t.Errorf("with all three keys: status %d, want a hit", a.Status)
		}
		b.direct.Del(t.Context(), k.Value)
		if a := b.acquire(tokenA, nil, ""); a.Status != Failed {
			t.Errorf("with failure and lease: status %d, want the failure", a.Status)
		}
		b.direct.Del(t.Context(), k.Failure)
		if a := b.acquire(tokenA, nil, ""); a.Status != Granted {
			t.Errorf("with the own lease: status %d, want a grant", a.Status)
		}
	})
}

// All answers but the grant of a free lease are given to late requests too.
func TestAcquireLate(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		late := func(token string, want Status) Acquired {
			t.Helper()
			a, err := Acquire(t.Context(), b.rdb, k, token, lease, 0, nil, "")
			if a.Status != want || err != nil {
				t.Errorf("late request: status %d, %v, want %d", a.Status, err, want)
			}
			return a
		}
		if a := late(tokenA, TooLate); (a.Time-b.now()) > 0 || b.now()-a.Time > time.Minute.Microseconds() {
			t.Errorf("time %d, want about %d", a.Time, b.now())
		}
		if all := b.snapshot(); len(all) != 0 {
			t.Errorf("a late request left %v", all)
		}
		stamp := b.hold(tokenA)
		if a := late(tokenA, Granted); a.Stamp != stamp {
			t.Errorf("own stamp %s, want %s", a.Stamp, stamp)
		}
		late(tokenB, Busy)
		b.put(k.Failure, b.failure())
		late(tokenB, Failed)
		b.put(k.Value, b.value())
		late(tokenB, Hit)
	})
}

func TestAcquireOwnLeaseIsArmedAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		stamp := b.hold(tokenA)
		if len(stamp) != StampLen {
			t.Errorf("stamp %q, want %d digits", stamp, StampLen)
		}
		b.direct.PExpire(t.Context(), k.Lease, 100*time.Millisecond)
		if a := b.acquire(tokenA, nil, ""); a.Status != Granted || a.Stamp != stamp {
			t.Errorf("own lease: %+v, want a grant with stamp %s", a, stamp)
		}
		if ttl := b.direct.PTTL(t.Context(), k.Lease).Val(); ttl < lease-time.Second || ttl > lease {
			t.Errorf("lifetime %v, want %v", ttl, lease)
		}
	})
}

func TestAcquireMarksOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		stamp := b.hold(tokenA)
		for range 3 {
			a := b.acquire(tokenB, nil, "")
			if a.Status != Busy || a.Stamp != stamp || a.PTTL <= 0 || a.PTTL > lease {
				t.Errorf("%+v, want busy with stamp %s and at most %v", a, stamp, lease)
			}
			if got := b.get(k.Lease); got != tokenA+stamp+"+" {
				t.Errorf("lease %q, want one mark", got)
			}
		}
		if a := b.acquire(tokenA, nil, ""); a.Stamp != stamp {
			t.Errorf("own stamp of an awaited lease %q, want %q", a.Stamp, stamp)
		}
		b.snapshot()
	})
}

// Whoever waited is not alone: the others wait for its grant next.
func TestGrantToOneThatWaitedStartsAwaited(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		a := b.acquire(tokenA, nil, Stamp(1))
		if a.Status != Granted || b.get(k.Lease) != tokenA+a.Stamp+"+" {
			t.Errorf("%+v, lease %q, want an awaited grant", a, b.get(k.Lease))
		}
		heard := b.heard(func() { b.answers(b.commits(a.Stamp), b.rdb, Stored) })
		if len(heard) != 1 {
			t.Errorf("published %q, want one wake", heard)
		}
	})
}

// I2 Only the token and stamp of the last grant can commit: here a copy of the acquire comes after an invalidation.
func TestDelayedAcquireDoesNotLetTheOldLoadCommit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		old := b.hold(tokenA)
		b.answers(invalidates, b.rdb, Stored)
		time.Sleep(time.Millisecond)
		if again := b.hold(tokenA); again == old {
			t.Fatalf("the copy has the stamp of the first grant")
		}
		b.answers(b.commits(old), b.rdb, Rejected)
		if v := b.get(k.Value); v != "" {
			t.Errorf("stored %q", v)
		}
	})
}

func TestPTTL(t *testing.T) {
	for n, want := range map[int64]time.Duration{0: time.Millisecond, 1: time.Millisecond, 1500: 1500 * time.Millisecond, -1: time.Hour} {
		if got := pttl(n); got != want {
			t.Errorf("pttl(%d) = %v, want %v", n, got, want)
		}
	}
}
