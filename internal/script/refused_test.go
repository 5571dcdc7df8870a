package script

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A user who may not publish wakes nobody, and every step works.
func TestWithoutTheRightToPublish(t *testing.T) {
	s := redistest.NewReal(t)
	admin := s.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	mute := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "pw" })
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := &bench{t, mute, admin}
			admin.FlushAll(t.Context())
			run := c.prepare(b)
			heard := b.heard(func() {
				b.answers(run, mute, c.want)
				b.answers(run, mute, c.again)
			})
			if len(heard) != 0 {
				t.Errorf("published %q without the right to", heard)
			}
			b.snapshot()
		})
	}
}

// At maxmemory a step that must write more is refused before it writes anything; one that gives back works.
func TestAtMaxmemory(t *testing.T) {
	s := redistest.NewReal(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	memory := func(t *testing.T, limit string) {
		t.Helper()
		if err := rdb.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, s)
			memory(t, "0")
			rdb.FlushAll(t.Context())
			run := c.prepare(b)
			before := b.snapshot()
			memory(t, "1")
			want := c.full
			if want == 0 {
				want = c.want
			}
			heard := b.heard(func() { b.answers(run, b.rdb, want) })
			if want != refused {
				if len(heard) == 0 != (c.message == "") {
					t.Errorf("published %q, want %q", heard, c.message)
				}
				b.snapshot()
				return
			}
			if after := b.snapshot(); len(heard) != 0 || !same(before, after) {
				t.Errorf("published %q, state\n%v\nwant\n%v", heard, after, before)
			}
		})
	}
	t.Run("set", func(t *testing.T) {
		b := newBench(t, s)
		memory(t, "0")
		b.all()
		before := b.snapshot()
		memory(t, "1")
		if r, err := Set(t.Context(), rdb, k, []byte("v"), life, b.soon(), channel, origin); !redis.IsOOMError(err) {
			t.Errorf("set: %v, %v, want OOM", r, err)
		}
		if after := b.snapshot(); !same(before, after) {
			t.Errorf("state\n%v\nwant\n%v", after, before)
		}
	})
	t.Run("the answers", func(t *testing.T) {
		b := newBench(t, s)
		memory(t, "0")
		rdb.FlushAll(t.Context())
		stamp := b.hold(tokenA)
		memory(t, "1")
		if a := b.acquire(tokenB, nil, ""); a.Status != Busy || b.get(k.Lease) != tokenA+stamp {
			t.Errorf("%+v, lease %q, want busy and no mark", a, b.get(k.Lease))
		}
		b.answers(b.fails(stamp), rdb, Held)
		if a := b.acquire(tokenB, nil, ""); a.Status != Failed {
			t.Errorf("%+v, want the failure", a)
		}
		if _, err := Acquire(t.Context(), rdb, Keys{"v2", "l2", "e2"}, tokenB, lease, b.soon(), nil, ""); !redis.IsOOMError(err) {
			t.Errorf("acquire: %v, want OOM", err)
		}
		memory(t, "0")
		b.lock(tokenA)
		memory(t, "1")
		b.answers(unlocks, rdb, Held)
		b.answers(unlocks, rdb, Held)
	})
}
