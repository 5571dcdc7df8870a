package herd

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
)

// XFetch is the rule of "Optimal Probabilistic Cache Stampede Prevention" (Vattani, Chierichetti, Lowenstein; VLDB 2015): a
// read recomputes a value that is still there when D·β·(−ln u) is more than the time it has left. D is what the last
// recomputation took and u a random number of each read's own, so that nobody has to talk to anybody.

// early reports whether a read recomputes a value that lives for left more; u is in (0, 1].
func early(left, took time.Duration, beta, u float64) bool {
	return -beta*float64(took)*math.Log(u) >= float64(left)
}

// recomputations is how many reads recompute a value before the first of them has stored it, on average.
//
// With reads at rate r, those that recompute at a time g before the expiry come at rate r·e^(−g/βD). Before the time g all
// together are Λ(g) = rβD·e^(−g/βD). That of the first is exponential with mean 1, and by the time its value is stored, D
// later, Λ has grown by a factor of e^(1/β): so many have begun on average, the first included. It holds when the value has
// not expired by then, which is when rβD·e^(−1/β) is well above 1, and when the TTL is long against the gap.
func recomputations(beta float64) float64 { return math.Exp(1 / beta) }

// gap is how long before the expiry the first of them begins, on average: the mean of the g above.
func gap(rate float64, took time.Duration, beta float64) time.Duration {
	const euler = 0.5772156649
	span := beta * took.Seconds()
	return time.Duration(span * (math.Log(rate*span) + euler) * float64(time.Second))
}

// longEnough is a TTL in whose first half next to no read recomputes: the law above knows no beginning, and stockade does
// not recompute then. It leaves 0.05 for Λ(TTL/2).
func longEnough(rate float64, took time.Duration, beta float64) time.Duration {
	span := beta * took.Seconds()
	ttl := 2 * span * math.Log(rate*span/0.05)
	return time.Duration(ttl * float64(time.Second)).Round(time.Millisecond)
}

// xfetch is that rule on GET and SET, without a lock.
type xfetch struct {
	worker *worker
	rdb    *redis.Client
	config peers.Config // EarlyRefresh is β
}

// xfetched is what is stored. Its last field is when it expires, in µs since 1970.
type xfetched struct{ ID, Version, Took, Expiry int64 }

// becoming makes XFetch of a process's contestant.
var becoming = define("become xfetch", func(ctx context.Context, w *worker, c peers.Config) (none struct{}, err error) {
	if err := w.cache.close(); err != nil {
		return none, err
	}
	x := &xfetch{w, redis.NewClient(&redis.Options{Addr: c.Redis, Dialer: w.sent.Dial}), c}
	w.cache = cache{get: x.get, close: x.rdb.Close}
	return none, nil
})

func (x *xfetch) get(ctx context.Context, id int) (origin.Item, error) {
	text, err := x.rdb.Get(ctx, x.key(id)).Result()
	if err != nil && err != redis.Nil {
		return origin.Item{}, err
	}
	if err == nil {
		var v xfetched
		if _, err := fmt.Sscan(text, &v.ID, &v.Version, &v.Took, &v.Expiry); err != nil {
			return origin.Item{}, err
		}
		left, took := time.Until(time.UnixMicro(v.Expiry)), time.Duration(v.Took)*time.Microsecond
		if !early(left, took, x.config.EarlyRefresh, 1-rand.Float64()) {
			return origin.Item{ID: int(v.ID), Version: int(v.Version)}, nil
		}
	}
	return x.recompute(ctx, id)
}

func (x *xfetch) recompute(ctx context.Context, id int) (origin.Item, error) {
	began := time.Now()
	item, err := x.worker.load(ctx, id)
	if err != nil {
		return item, err
	}
	now := time.Now()
	text := fmt.Sprintln(item.ID, item.Version, now.Sub(began).Microseconds(), now.Add(x.config.TTL).UnixMicro())
	return item, x.rdb.Set(ctx, x.key(id), text, x.config.TTL).Err()
}

func (x *xfetch) key(id int) string { return x.config.Prefix + ":" + keyOf(id) }
