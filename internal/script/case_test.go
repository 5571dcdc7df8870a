package script

import (
	"context"

	"github.com/redis/go-redis/v9"
)

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
