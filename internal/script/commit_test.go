package script

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I9 Lifetimes are what was asked.
func TestLifetimes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		lives := func(key string, want time.Duration) {
			t.Helper()
			if got := b.direct.PTTL(t.Context(), key).Val(); got > want || got < want-time.Second {
				t.Errorf("lifetime of %s %v, want %v", key, got, want)
			}
		}
		b.answers(b.commits(b.hold(tokenA)), b.rdb, Stored)
		lives(k.Value, life)
		b.direct.FlushAll(t.Context())
		touch := b.touches(false)
		b.direct.PExpire(t.Context(), k.Value, time.Second)
		b.answers(touch, b.rdb, Stored)
		lives(k.Value, life)
		b.direct.FlushAll(t.Context())
		b.hold(tokenA)
		lives(k.Lease, lease)
		b.acquire(tokenB, nil, "")
		lives(k.Lease, lease)
		b.answers(b.renews(k.Lease), b.rdb, Held)
		lives(k.Lease, life)
		b.direct.FlushAll(t.Context())
		b.answers(b.fails(b.hold(tokenA)), b.rdb, Held)
		lives(k.Failure, life)
		b.lock(tokenA)
		lives(m, life)
		lives(n, 24*time.Hour)
		b.answers(unlocks, b.rdb, Held)
		lives(n, 24*time.Hour)
		if taken, err := Take(t.Context(), b.rdb, m, n, tokenB, 48*time.Hour, b.soon(), false); taken.Status != Granted || err != nil {
			t.Errorf("take: %+v, %v", taken, err)
		}
		lives(m, 48*time.Hour)
		lives(n, 48*time.Hour)
	})
}

func TestRenewNeverShortens(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		b.hold(tokenA)
		b.direct.PExpire(t.Context(), k.Lease, time.Hour)
		b.answers(b.renews(k.Lease), b.rdb, Held)
		if ttl := b.direct.PTTL(t.Context(), k.Lease).Val(); ttl < time.Hour-time.Second {
			t.Errorf("lifetime %v, want an hour", ttl)
		}
	})
}

func TestTouchKeepsThePayload(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		touch := b.touches(false)
		b.answers(touch, b.rdb, Stored)
		got := b.get(k.Value)
		if payload := got[HeadLen:]; payload != "payload" {
			t.Errorf("payload %q", payload)
		}
		if writer := got[5:21]; writer != tokenA {
			t.Errorf("writer %q, want %q", writer, tokenA)
		}
		b.direct.Del(t.Context(), k.Value)
		b.answers(touch, b.rdb, Rejected)
	})
}

// A value that went while it was revalidated is committed as a whole, under the lease that is still held.
func TestCommitAfterTouchFindsNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		touch := b.touches(false)
		stamp := b.get(k.Lease)[16:32]
		b.direct.Del(t.Context(), k.Value)
		b.answers(touch, b.rdb, Missing)
		b.answers(b.commits(stamp), b.rdb, Stored)
	})
}

// I3 I2 After any of these nothing of the flight before is stored.
func TestCommitAfterSomethingNewer(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(b *bench)
	}{
		{"invalidate", func(b *bench) { b.answers(invalidates, b.rdb, Stored) }},
		{"expire", func(b *bench) { b.answers(expires, b.rdb, Stored) }},
		{"set", func(b *bench) {
			if _, err := Set(b.Context(), b.rdb, k, []byte(entry(tokenB, 3, 4, "set")), life, b.soon(), channel, origin); err != nil {
				b.Fatal(err)
			}
		}},
		{"flush", func(b *bench) { b.direct.FlushAll(b.Context()) }},
		{"another's lease", func(b *bench) { b.direct.Del(b.Context(), k.Lease); b.hold(tokenB) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				b := newBench(t, s)
				stamp := b.hold(tokenA)
				commit, drop, fail := b.commits(stamp), b.drops(stamp), b.fails(stamp)
				c.run(b)
				before := b.snapshot()
				b.answers(commit, b.rdb, Rejected)
				b.answers(drop, b.rdb, Rejected)
				b.answers(fail, b.rdb, Lost)
				b.answers(releases, b.rdb, Lost)
				b.answers(b.renews(k.Lease), b.rdb, Lost)
				if after := b.snapshot(); !same(before, after) {
					t.Errorf("state\n%v\nwant\n%v", after, before)
				}
			})
		})
	}
}

func TestFailIsReadByAcquire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		stamp := b.hold(tokenA)
		message := strings.Repeat("é+0", 300)
		r, err := Do(t.Context(), b.rdb, Fail(k, tokenA, stamp, b.soon(), message, life, channel))
		if r.Status != Held || err != nil {
			t.Fatalf("fail: %v, %v", r, err)
		}
		if a := b.acquire(tokenB, nil, ""); a.Status != Failed || a.Stamp != stamp || a.Message != message {
			t.Errorf("%+v, want the failure", a)
		}
	})
}

// A foreign type under one of our names is an error, and nothing is changed. Set and invalidate replace it: they need
// not look at what stands there.
func TestForeignTypes(t *testing.T) {
	foreign := func(b *bench, key string) {
		b.Helper()
		b.direct.Del(b.Context(), key)
		if err := b.direct.RPush(b.Context(), key, "foreign").Err(); err != nil {
			b.Fatal(err)
		}
		b.direct.PExpire(b.Context(), key, life)
	}
	for _, c := range []struct {
		name    string
		keys    []string
		prepare func(b *bench) call
	}{
		{"acquire", []string{k.Value, k.Lease, k.Failure}, func(b *bench) call { return b.acquires(tokenA) }},
		{"renew", []string{k.Lease}, func(b *bench) call { return b.renews(k.Lease) }},
		{"commit", []string{k.Value, k.Lease}, func(b *bench) call { return b.commits(b.holdAwaited()) }},
		{"touch", []string{k.Value, k.Lease}, func(b *bench) call { return b.touches(true) }},
		{"drop", []string{k.Lease}, func(b *bench) call { return b.drops(b.holdAwaited()) }},
		{"fail", []string{k.Lease}, func(b *bench) call { return b.fails(b.holdAwaited()) }},
		{"release", []string{k.Lease}, func(*bench) call { return releases }},
		{"expire", []string{k.Value}, func(b *bench) call { b.all(); return expires }},
		{"take", []string{m, n}, func(b *bench) call { return b.takes(true) }},
		{"unlock", []string{m, n}, func(b *bench) call { b.lock(tokenA); return unlocks }},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				for _, key := range c.keys {
					b := newBench(t, s)
					b.direct.FlushAll(t.Context())
					run := c.prepare(b)
					foreign(b, key)
					before := b.snapshot()
					heard := b.heard(func() { b.answers(run, b.rdb, refused) })
					if after := b.snapshot(); len(heard) != 0 || !same(before, after) {
						t.Errorf("foreign %s: published %q, state\n%v\nwant\n%v", key, heard, after, before)
					}
				}
			})
		})
	}
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		value := b.value()
		for _, run := range []call{invalidates, func(ctx context.Context, r *redis.Client) (Status, error) {
			return status(Set(ctx, r, k, []byte(value), life, b.soon(), channel, origin))
		}} {
			for _, key := range []string{k.Value, k.Lease, k.Failure} {
				foreign(b, key)
			}
			b.answers(run, b.rdb, Stored)
		}
		if all := b.snapshot(); len(all) != 1 || all[k.Value].value != value {
			t.Errorf("state %v, want the value that was set", all)
		}
	})
}
