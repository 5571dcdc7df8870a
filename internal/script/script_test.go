package script

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

const refused Status = -1 // instead of a status: an error of the server

// cases has a row for each answer of each step. prepare returns the step itself, with fixed arguments.
var cases = []struct {
	name    string
	prepare func(b *bench) call
	want    Status
	again   Status // of a second run with the same arguments
	message string // that is published by the first run
	full    Status // at maxmemory; zero: as want
}{
	{"acquire a missing key", func(b *bench) call { return b.acquires(tokenA) }, Granted, Granted, "", refused},
	{"acquire a key with a value", func(b *bench) call { b.put(k.Value, b.value()); return b.acquires(tokenA) }, Hit, Hit, "", 0},
	{"acquire one's own", func(b *bench) call { b.hold(tokenA); return b.acquires(tokenA) }, Granted, Granted, "", 0},
	{"acquire another's", func(b *bench) call { b.hold(tokenB); return b.acquires(tokenA) }, Busy, Busy, "", 0},
	{"acquire after a failure", func(b *bench) call { b.put(k.Failure, b.failure()); return b.acquires(tokenA) }, Failed, Failed, "", 0},
	{"acquire too late", func(b *bench) call {
		late := b.now() - 1
		return func(ctx context.Context, r *redis.Client) (Status, error) {
			a, err := Acquire(ctx, r, k, tokenA, lease, late, nil, "")
			return a.Status, err
		}
	}, TooLate, TooLate, "", 0},

	{"renew a lease", func(b *bench) call { b.hold(tokenA); return b.renews(k.Lease) }, Held, Held, "", 0},
	{"renew a lock", func(b *bench) call { b.lock(tokenA); return b.renews(m) }, Held, Held, "", 0},
	{"renew nothing", func(b *bench) call { return b.renews(k.Lease) }, Lost, Lost, "", 0},
	{"renew another's", func(b *bench) call { b.hold(tokenB); return b.renews(k.Lease) }, Lost, Lost, "", 0},

	{"commit", func(b *bench) call { return b.commits(b.hold(tokenA)) }, Stored, Already, "", refused},
	{"commit over a value", func(b *bench) call {
		old := entry(tokenB, 1, 2, "old")
		b.put(k.Value, old)
		seen := head(old)
		return b.commits(b.acquire(tokenA, &seen, "").Stamp)
	}, Stored, Already, "", refused},
	{"commit what is awaited", func(b *bench) call { return b.commits(b.holdAwaited()) }, Stored, Already, "w" + k.Value, refused},
	{"commit without a lease", func(b *bench) call { return b.commits(Stamp(b.now())) }, Rejected, Rejected, "", 0},
	{"commit under another's lease", func(b *bench) call { return b.commits(b.hold(tokenB)) }, Rejected, Rejected, "", 0},
	{"commit with the stamp of an earlier grant", func(b *bench) call { b.hold(tokenA); return b.commits(Stamp(b.now() - 1)) }, Rejected, Rejected, "", 0},

	{"touch", func(b *bench) call { return b.touches(false) }, Stored, Already, "", refused},
	{"touch what is awaited", func(b *bench) call { return b.touches(true) }, Stored, Already, "w" + k.Value, refused},
	{"touch a value that is gone", func(b *bench) call {
		touch := b.touches(true)
		b.direct.Del(b.Context(), k.Value)
		return touch
	}, Missing, Missing, "", 0},
	{"touch a value that was replaced", func(b *bench) call {
		touch := b.touches(true)
		b.put(k.Value, entry(tokenB, 5, 6, "other"))
		return touch
	}, Missing, Missing, "", 0},
	{"touch without a lease", func(b *bench) call {
		touch := b.touches(false)
		b.direct.Del(b.Context(), k.Lease)
		return touch
	}, Rejected, Rejected, "", 0},

	{"drop", func(b *bench) call { b.put(k.Value, b.value()); return b.drops(b.holdOver(false)) }, Stored, Rejected, "", 0},
	{"drop what is awaited", func(b *bench) call { b.put(k.Value, b.value()); return b.drops(b.holdOver(true)) }, Stored, Rejected, "w" + k.Value, 0},
	{"drop with another stamp", func(b *bench) call { b.put(k.Value, b.value()); b.holdOver(true); return b.drops(Stamp(1)) }, Rejected, Rejected, "", 0},

	{"fail", func(b *bench) call { return b.fails(b.hold(tokenA)) }, Held, Lost, "", 0},
	{"fail what is awaited", func(b *bench) call { return b.fails(b.holdAwaited()) }, Held, Lost, "w" + k.Value, 0},
	{"fail with another stamp", func(b *bench) call { b.holdAwaited(); return b.fails(Stamp(1)) }, Lost, Lost, "", 0},
	{"fail under another's lease", func(b *bench) call { return b.fails(b.hold(tokenB)) }, Lost, Lost, "", 0},

	{"release", func(b *bench) call { b.hold(tokenA); return releases }, Held, Lost, "", 0},
	{"release what is awaited", func(b *bench) call { b.holdAwaited(); return releases }, Held, Lost, "w" + k.Value, 0},
	{"release another's", func(b *bench) call { b.hold(tokenB); return releases }, Lost, Lost, "", 0},

	{"invalidate", func(b *bench) call { b.all(); return invalidates }, Stored, Stored, "i" + origin + k.Value, 0},
	{"invalidate nothing", func(*bench) call { return invalidates }, Stored, Stored, "i" + origin + k.Value, 0},
	{"expire", func(b *bench) call { b.all(); return expires }, Stored, Stored, "i" + origin + k.Value, 0},
	{"expire nothing", func(*bench) call { return expires }, Stored, Stored, "i" + origin + k.Value, 0},
	{"expire what has no stale time", func(b *bench) call { b.put(k.Value, entry(tokenA, 9, 9, "")); return expires }, Stored, Stored, "i" + origin + k.Value, 0},

	{"take", func(b *bench) call { return b.takes(false) }, Granted, Granted, "", refused},
	{"take one's own", func(b *bench) call { b.lock(tokenA); return b.takes(true) }, Granted, Granted, "", 0},
	{"take another's", func(b *bench) call { b.lock(tokenB); return b.takes(false) }, Busy, Busy, "", 0},
	{"take another's and wait", func(b *bench) call { b.lock(tokenB); return b.takes(true) }, Busy, Busy, "", 0},
	{"take too late", func(b *bench) call {
		late := b.now() - 1
		return func(ctx context.Context, r *redis.Client) (Status, error) {
			taken, err := Take(ctx, r, m, n, tokenA, life, late, false)
			return taken.Status, err
		}
	}, TooLate, TooLate, "", 0},
	{"unlock", func(b *bench) call { b.lock(tokenA); return unlocks }, Held, Held, "", 0},
	{"unlock what is awaited", func(b *bench) call {
		b.lock(tokenA)
		if taken, err := Take(b.Context(), b.rdb, m, n, tokenB, life, b.soon(), true); taken.Status != Busy || err != nil {
			b.Fatalf("take: %v, %v", taken, err)
		}
		return unlocks
	}, Held, Held, "w" + m, 0},
	{"unlock nothing", func(*bench) call { return unlocks }, Lost, Lost, "", 0},
	{"unlock another's", func(b *bench) call { b.lock(tokenB); return unlocks }, Lost, Lost, "", 0},
}

// call is a step with all its arguments.
type call = func(ctx context.Context, r *redis.Client) (Status, error)

func (b *bench) holdAwaited() string {
	b.Helper()
	stamp := b.hold(tokenA)
	if a := b.acquire(tokenB, nil, ""); a.Status != Busy {
		b.Fatalf("acquire: status %d, want busy", a.Status)
	}
	return stamp
}

// holdOver holds the lease of a key that has a value.
func (b *bench) holdOver(awaited bool) string {
	b.Helper()
	seen := head(b.get(k.Value))
	stamp := b.acquire(tokenA, &seen, "").Stamp
	if awaited {
		b.acquire(tokenB, &seen, "")
	}
	return stamp
}

func (b *bench) failure() string { return Stamp(b.now()) + Stamp(b.soon()) + "no" }

func (b *bench) all() {
	b.Helper()
	b.put(k.Value, b.value())
	b.holdOver(true)
	b.put(k.Failure, b.failure())
}

func (b *bench) acquires(token string) call {
	until := b.soon()
	return func(ctx context.Context, r *redis.Client) (Status, error) {
		a, err := Acquire(ctx, r, k, token, lease, until, nil, "")
		return a.Status, err
	}
}

func (b *bench) renews(key string) call {
	return func(ctx context.Context, r *redis.Client) (Status, error) {
		return status(Do(ctx, r, Renew(key, tokenA, life)))
	}
}

func (b *bench) commits(stamp string) call {
	value := []byte(b.value())
	return func(ctx context.Context, r *redis.Client) (Status, error) {
		return status(Do(ctx, r, Commit(k, tokenA, stamp, value, life, channel)))
	}
}

func (b *bench) touches(awaited bool) call {
	b.put(k.Value, entry(tokenB, 1, 2, "payload"))
	seen := head(b.get(k.Value))
	stamp := b.holdOver(awaited)
	fresh := []byte(head(b.value()))
	return func(ctx context.Context, r *redis.Client) (Status, error) {
		return status(Do(ctx, r, Touch(k, tokenA, stamp, fresh, life, channel, seen)))
	}
}

func (b *bench) drops(stamp string) call {
	return func(ctx context.Context, r *redis.Client) (Status, error) {
		return status(Do(ctx, r, Drop(k, tokenA, stamp, channel)))
	}
}

func (b *bench) fails(stamp string) call {
	until := b.soon()
	return func(ctx context.Context, r *redis.Client) (Status, error) {
		return status(Do(ctx, r, Fail(k, tokenA, stamp, until, "no", life, channel)))
	}
}

func (b *bench) takes(waits bool) call {
	until := b.soon()
	return func(ctx context.Context, r *redis.Client) (Status, error) {
		taken, err := Take(ctx, r, m, n, tokenA, life, until, waits)
		return taken.Status, err
	}
}

func releases(ctx context.Context, r *redis.Client) (Status, error) {
	return status(Do(ctx, r, Release(k, tokenA, channel)))
}

func unlocks(ctx context.Context, r *redis.Client) (Status, error) {
	return status(Unlock(ctx, r, m, n, tokenA, channel))
}

func invalidates(ctx context.Context, r *redis.Client) (Status, error) {
	return status(Do(ctx, r, Invalidate(k, channel, origin)))
}

func expires(ctx context.Context, r *redis.Client) (Status, error) {
	return status(Do(ctx, r, Expire(k, channel, origin)))
}

func status(r Result, err error) (Status, error) { return r.Status, err }

// answers runs a step and compares its status.
func (b *bench) answers(run call, rdb *redis.Client, want Status) {
	b.Helper()
	got, err := run(b.Context(), rdb)
	if err != nil {
		got = refused
	}
	if got != want {
		b.Fatalf("status %d, %v, want %d", got, err, want)
	}
}

// I4 A step leaves the same state when it is executed twice, and says what happened. I9 Each key expires. A message is
// published when somebody waits for it, or when the value changed by another's hand.
func TestSteps(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				b := newBench(t, s)
				run := c.prepare(b)
				heard := b.heard(func() { b.answers(run, b.rdb, c.want) })
				if strings.Join(heard, " ") != c.message {
					t.Errorf("published %q, want %q", heard, c.message)
				}
				once := b.snapshot()
				b.answers(run, b.rdb, c.again)
				if twice := b.snapshot(); !same(once, twice) {
					t.Errorf("state after the second run\n%v\nwant\n%v", twice, once)
				}
			})
		})
	}
}

// I4 A step whose reply is lost is repeated by the client, which gets the answer of the second execution.
func TestStepsUnderALostReply(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				b := newBench(t, s)
				p := redistest.NewProxy(t, s)
				run := c.prepare(b)
				// The server knows the script only when it was prepared with it.
				p.DropReplies(1, func(command []string) bool {
					return command[0] == "eval" || command[0] == "evalsha" && b.knows(command[1])
				})
				b.answers(run, p.Client(t), c.again)
				b.snapshot()
			})
		})
	}
}

func (b *bench) knows(hash string) bool {
	known, err := b.direct.ScriptExists(context.Background(), hash).Result()
	return err == nil && known[0]
}

// Any step may be the first that a server sees, and the script may go between two runs.
func TestStepsAfterScriptFlush(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				b := newBench(t, s)
				sent := redistest.NewFaults(t)
				counted := s.Client(t)
				counted.AddHook(sent)
				run := c.prepare(b)
				for i, want := range []Status{c.want, c.again} {
					if err := b.direct.ScriptFlush(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					b.answers(run, counted, want)
					if hashes, sources := sent.Count("evalsha"), sent.Count("eval"); hashes != i+1 || sources != i+1 {
						t.Errorf("sent %d hashes and %d sources, want %d of each", hashes, sources, i+1)
					}
				}
				b.answers(run, counted, c.again)
				if sources := sent.Count("eval"); sources != 2 {
					t.Errorf("sent the source of a known script")
				}
			})
		})
	}
}

// Set is for clients that must not repeat it.
func TestSetIsSentOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		b.all()
		value := b.value()
		set := func(r Runner) (Result, error) {
			return Set(t.Context(), r, k, []byte(value), life, b.soon(), channel, origin)
		}
		heard := b.heard(func() {
			if r, err := set(b.rdb); r.Status != Stored || err != nil {
				t.Errorf("set: %v, %v, want stored", r, err)
			}
		})
		if !slices.Equal(heard, []string{"i" + origin + k.Value}) {
			t.Errorf("published %q", heard)
		}
		all := b.snapshot()
		if len(all) != 1 || all[k.Value].value != value {
			t.Errorf("state %v, want the value alone", all)
		}
		p := redistest.NewProxy(t, s)
		p.DropReplies(1, redistest.Named("evalsha"))
		heard = b.heard(func() {
			if r, err := set(p.Client(t)); err == nil {
				t.Errorf("set with a lost reply: %v, want an error", r)
			}
		})
		if len(heard) != 1 {
			t.Errorf("executed %d times, want once", len(heard))
		}
		late, err := Set(t.Context(), b.rdb, k, []byte("late"), life, b.now()-1, channel, origin)
		if late.Status != TooLate || err != nil || b.get(k.Value) != value {
			t.Errorf("late set: %v, %v, value %q", late, err, b.get(k.Value))
		}
	})
}

func calls(step func(k Keys, channel, origin string) Call, keys []Keys) (list []Call) {
	for _, k := range keys {
		list = append(list, step(k, channel, origin))
	}
	return list
}

func TestManyKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		var keys []Keys
		for i := range 50 {
			keys = append(keys, Keys{fmt.Sprint("v", i), fmt.Sprint("l", i), fmt.Sprint("e", i)})
			b.put(keys[i].Value, b.value())
		}
		b.direct.Del(t.Context(), keys[7].Value)
		if err := b.direct.RPush(t.Context(), keys[7].Value, "foreign").Err(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // without and with the script
			results, errs := DoMany(t.Context(), b.rdb, calls(Expire, keys))
			for i := range keys {
				if failed := errs[i] != nil; failed != (i == 7) || !failed && results[i].Status != Stored {
					t.Errorf("expire %d: %v, %v", i, results[i], errs[i])
				}
			}
		}
		for range 2 {
			results, errs := DoMany(t.Context(), b.rdb, calls(Invalidate, keys))
			for i := range keys {
				if errs[i] != nil || results[i].Status != Stored {
					t.Errorf("invalidate %d: %v, %v", i, results[i], errs[i])
				}
			}
		}
		if all := b.snapshot(); len(all) != 0 {
			t.Errorf("%d keys are left", len(all))
		}
		if results, errs := DoMany(t.Context(), b.rdb, nil); len(results)+len(errs) != 0 {
			t.Errorf("no keys: %v, %v", results, errs)
		}
	})
}
