package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	channel = "ns:wake"
	origin  = "originxx"
	tokenA  = "aaaaaaaaaaaaaaaa"
	tokenB  = "bbbbbbbbbbbbbbbb"
	lease   = 2 * time.Second
	life    = time.Minute
)

var (
	k = Keys{Value: "ns:K:v:{k}", Lease: "ns:K:l:{k}", Failure: "ns:K:e:{k}"}
	// A lock and its fences.
	m, n = "ns:K:m:{k}", "ns:K:n:{k}"
)

// bench is a server, a client of it under test and another that sees everything.
type bench struct {
	*testing.T
	rdb, direct *redis.Client
}

func newBench(t *testing.T, s redistest.Server) *bench {
	rdb := s.Client(t)
	return &bench{t, rdb, rdb}
}

// now is the server's time in µs.
func (b *bench) now() int64 {
	b.Helper()
	now, err := b.direct.Time(b.Context()).Result()
	if err != nil {
		b.Fatal(err)
	}
	return now.UnixMicro()
}

func (b *bench) soon() int64 { return b.now() + time.Minute.Microseconds() }

// entry is a stored entry: the head, as steps compare and patch it, then a payload.
func entry(token string, fresh, stale int64, payload string) string {
	head := []byte{0x99, 1, 0, 0xc4, 16}
	head = append(head, token...)
	for _, number := range []int64{1000, fresh, stale, 7} {
		head = binary.BigEndian.AppendUint64(append(head, 0xcf), uint64(number))
	}
	return string(head) + payload
}

func head(entry string) string { return entry[:HeadLen] }

// value is an entry of token A that is fresh for a minute and stale for another.
func (b *bench) value() string {
	now := b.now() / 1000
	return entry(tokenA, now+60_000, now+120_000, "payload")
}

func (b *bench) put(key, value string) {
	b.Helper()
	if err := b.direct.Set(b.Context(), key, value, life).Err(); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) get(key string) string {
	b.Helper()
	v, err := b.direct.Get(b.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		b.Fatal(err)
	}
	return v
}

// hold has a token take the lease, and returns the stamp.
func (b *bench) hold(token string) string {
	b.Helper()
	a := b.acquire(token, nil, "")
	if a.Status != Granted {
		b.Fatalf("acquire: status %d, want a grant", a.Status)
	}
	return a.Stamp
}

func (b *bench) acquire(token string, seen *string, waited string) Acquired {
	b.Helper()
	a, err := Acquire(b.Context(), b.rdb, k, token, lease, b.soon(), seen, waited)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

// lock has a token take the lock, and returns the fence.
func (b *bench) lock(token string) int64 {
	b.Helper()
	taken, err := Take(b.Context(), b.rdb, m, n, token, life, b.soon(), false)
	if err != nil || taken.Status != Granted {
		b.Fatalf("take: status %d, %v, want a grant", taken.Status, err)
	}
	return taken.Fence
}

// kept is what a key holds.
type kept struct {
	value string
	pttl  time.Duration
}

// snapshot is everything in the server. A key without an expiry fails the test.
func (b *bench) snapshot() map[string]kept {
	b.Helper()
	all := map[string]kept{}
	for _, key := range b.direct.Keys(b.Context(), "*").Val() {
		state := kept{pttl: b.direct.PTTL(b.Context(), key).Val()}
		switch kind := b.direct.Type(b.Context(), key).Val(); kind {
		case "string":
			state.value = b.get(key)
		case "none": // expired since
			continue
		default:
			state.value = fmt.Sprint(kind, b.direct.LRange(b.Context(), key, 0, -1).Val())
		}
		if state.pttl <= 0 {
			b.Errorf("key %s has no expiry", key)
		}
		all[key] = state
	}
	return all
}

// same reports whether two snapshots are equal, but for expiries that the time between them explains.
func same(a, b map[string]kept) bool {
	return maps.EqualFunc(a, b, func(x, y kept) bool { return x.value == y.value && (x.pttl-y.pttl).Abs() < time.Second })
}

// heard returns what is published on the channel while f runs.
func (b *bench) heard(f func()) []string {
	b.Helper()
	sub := b.direct.Subscribe(b.Context(), channel)
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(b.Context()); err != nil {
		b.Fatal(err)
	}
	f()
	b.direct.Publish(b.Context(), channel, "end")
	var list []string
	for {
		msg, err := sub.ReceiveMessage(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if msg.Payload == "end" {
			return list
		}
		list = append(list, msg.Payload)
	}
}
