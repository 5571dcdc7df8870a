package script

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// times are fresh-until and stale-until of an entry, ms.
func times(entry string) (fresh, stale int64) {
	return int64(binary.BigEndian.Uint64([]byte(entry[31:39]))), int64(binary.BigEndian.Uint64([]byte(entry[40:48])))
}

func TestExpireMakesStaleNow(t *testing.T) {
	const second = 1000
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		for _, c := range []struct {
			name         string
			fresh, stale int64 // ms from now
			want         int64 // stale-until, ms from now
		}{
			{"fresh", 60 * second, 100 * second, 40 * second},
			{"stale already, for longer than it may", -30 * second, 10 * second, 10 * second},
			{"stale already, for a part of its time", -10 * second, 30 * second, 30 * second},
			{"kept only", -60 * second, -20 * second, -20 * second},
			{"about to be stale", 1, 40*second + 1, 40 * second},
		} {
			b.direct.FlushAll(t.Context())
			now := b.now() / 1000
			value := entry(tokenA, now+c.fresh, now+c.stale, "payload")
			if err := b.direct.Set(t.Context(), k.Value, value, 77*time.Second).Err(); err != nil {
				t.Fatal(err)
			}
			b.holdSeen(value)
			b.put(k.Failure, b.failure())
			b.answers(expires, b.rdb, Stored)
			once := b.get(k.Value)
			fresh, stale := times(once)
			if fresh != 0 || stale < now+c.want || stale > now+c.want+second || stale > now+c.stale {
				t.Errorf("%s: fresh until %d, stale until now + %d, want 0 and now + %d", c.name, fresh, stale-now, c.want)
			}
			if once[:31] != value[:31] || once[48:] != value[48:] {
				t.Errorf("%s: something else changed: %q", c.name, once)
			}
			if ttl := b.direct.PTTL(t.Context(), k.Value).Val(); ttl < 76*time.Second || ttl > 77*time.Second {
				t.Errorf("%s: lifetime %v, want 77s", c.name, ttl)
			}
			if b.get(k.Lease) != "" {
				t.Errorf("%s: the lease is still there", c.name)
			}
			time.Sleep(2 * time.Millisecond)
			b.answers(expires, b.rdb, Stored)
			if twice := b.get(k.Value); twice != once {
				t.Errorf("%s: a second run changed %q to %q", c.name, once, twice)
			}
		}
	})
}

// holdSeen takes the lease of a key whose value was seen.
func (b *bench) holdSeen(value string) {
	b.Helper()
	seen := head(value)
	if a := b.acquire(tokenA, &seen, ""); a.Status != Granted {
		b.Fatalf("acquire: status %d", a.Status)
	}
}

func TestExpireRemovesWhatMayNotBeStale(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		soon := b.soon() / 1000
		value := entry(tokenA, soon, soon, "")
		b.put(k.Value, value)
		b.holdSeen(value)
		b.put(k.Failure, b.failure())
		b.answers(expires, b.rdb, Stored)
		if all := b.snapshot(); len(all) != 0 {
			t.Errorf("left %v", all)
		}
	})
}

// What has no head of this version is left alone, but nobody commits over it.
func TestExpireOfUnknownValues(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		good := b.value()
		for _, value := range []string{"", "x", good[:HeadLen-1], "\x99\x02" + good[2:], strings.Repeat("x", 100)} {
			b.direct.FlushAll(t.Context())
			b.put(k.Value, value)
			seen := value[:min(len(value), HeadLen)]
			b.acquire(tokenA, &seen, "")
			b.answers(expires, b.rdb, Stored)
			all := b.snapshot()
			if len(all) != 1 || all[k.Value].value != value {
				t.Errorf("expire of %q left %v", value, all)
			}
		}
	})
}
