package stockade

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/script"
)

// Set writes a value through with the lifetimes of the view. It beats any load in flight: what was being loaded is not
// stored. When two writers of one key both use Set, the later write to Redis wins, whatever the source says: use
// [Cache.Invalidate] there. An error that Is [ErrRedis] means that the outcome is unknown; the write does not happen
// later.
func (c *Cache[T]) Set(ctx context.Context, key string, value T) error {
	return c.SetEntry(ctx, key, Entry[T]{Value: value})
}

// SetEntry is Set for an entry with lifetimes of its own. Its Age is when the value was read from the source, and its
// NoStore an error.
func (c *Cache[T]) SetEntry(ctx context.Context, key string, e Entry[T]) error {
	return c.view.setEntry(ctx, key, e.box())
}

func (c *view) setEntry(ctx context.Context, key string, e boxed) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if e.NoStore {
		return configError("Entry.NoStore", e.NoStore, "cannot be set: Invalidate removes a value")
	}
	if err := c.checkEntry(e); err != nil {
		return err
	}
	names := c.names(key)
	defer c.outdate(key)
	timeout := c.opts.RedisTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	over := time.Now().Add(timeout)
	err := c.set(ctx, names, e, over)
	if errors.Is(err, ErrRedis) {
		c.stats.changeErrors.Add(1)
	}
	if isUnknown(err) {
		// Until then the write may still happen.
		c.sleepUntil(over)
		c.drawOrigin() // what is heard of it later is news
	}
	return err
}

// set sends the write, which may not happen after over.
func (c *view) set(ctx context.Context, names script.Keys, e boxed, over time.Time) error {
	life, origin := c.policy.lifetimes(e.TTL, e.StaleFor, e.KeepFor), *c.origin.Load()
	for try := 0; ; try++ {
		n, err := c.nodes.of(ctx, names.Value)
		if err != nil {
			return callError(ctx, err)
		}
		// With an unknown clock the server says that it is too late, and its time with it.
		now, _ := n.clock.now()
		notAfter := n.clock.after(time.Until(over) - setMargin)
		ms := now / 1000
		entry, err := c.format.encode(head{
			token: newToken(), loadedAt: max(ms-e.Age.Milliseconds(), 0),
			freshUntil: ms + life.fresh.Milliseconds(), staleUntil: ms + (life.fresh + life.stale).Milliseconds(),
		}, e.ETag, e.Value)
		if err != nil {
			return err
		}
		r, err := stepOnce(ctx, n, "set", func(ctx context.Context, r script.Runner) (script.Result, error) {
			return script.Set(ctx, r, names, entry, life.total(), notAfter, c.channel, origin)
		})
		switch {
		case err != nil:
			return callError(ctx, err)
		case r.Status == script.Stored:
			return nil
		case try == 1:
			return redisError(errLate)
		}
		n.clock.correct(r.Time)
	}
}

// setMargin is how much earlier than the end of the wait a Set must reach the server: by so much may its clock have
// drifted since the last sample.
const setMargin = 2 * time.Millisecond

var errLate = errors.New("the request came too late and was not executed")

// isUnknown reports whether a failed write may have been executed, or may still be.
func isUnknown(err error) bool {
	return errors.Is(err, ErrRedis) && !errors.Is(err, errLate) && !errors.As(err, new(errOpen)) && !errors.As(err, new(redis.Error))
}

// sleepUntil waits for a time, or the end of the cache.
func (c *core) sleepUntil(t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// Invalidate removes keys, on every instance, and beats any load in flight: what was being loaded is not stored. When it
// returns nil, no read that begins later gets an older value. Keys of one node take one round trip. When it fails, the
// error Is [ErrRedis] (a *[KeysError] when there are several keys), and older values may be served until their TTL:
// call it again.
func (c *Cache[T]) Invalidate(ctx context.Context, keys ...string) error {
	return c.view.change(ctx, "invalidate", script.Invalidate, keys)
}

// Expire makes keys stale now: their values are served for StaleFor while one process refreshes them. A value without
// StaleFor is removed. Errors are those of Invalidate.
func (c *Cache[T]) Expire(ctx context.Context, keys ...string) error {
	return c.view.change(ctx, "expire", script.Expire, keys)
}

// change runs a step for many keys.
func (c *view) change(ctx context.Context, op string, call func(k script.Keys, channel, origin string) script.Call, keys []string) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	defer c.outdate(keys...)
	errs, origin := make([]error, len(keys)), *c.origin.Load()
	groups := c.byNode(ctx, len(keys), func(i int) string { return keyName(c.opts.Prefix, 'v', keys[i]) }, func(i int, err error) { errs[i] = err })
	each(groups, func(n *node, group []int) {
		calls := make([]script.Call, len(group))
		for j, i := range group {
			calls[j] = call(c.names(keys[i]), c.channel, origin)
		}
		_, failed := stepMany(ctx, n, op, len(calls), func(ctx context.Context, p script.Pipeliner) ([]script.Result, []error) {
			return script.DoMany(ctx, p, calls)
		})
		for j, i := range group {
			errs[i] = failed[j]
		}
	})
	failed := map[string]error{}
	for i, err := range errs {
		if err == nil {
			continue
		}
		err = callError(ctx, err)
		if errors.Is(err, ErrRedis) {
			c.stats.changeErrors.Add(1)
		}
		failed[keys[i]] = err
	}
	if len(failed) > 0 {
		c.drawOrigin() // what is heard of them later is news
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(keys) == 1:
		return failed[keys[0]]
	}
	return &KeysError{Errs: failed}
}

// outdate makes this process forget what it holds of keys that were written.
func (c *core) outdate(keys ...string) {
	for _, key := range keys {
		c.filling.remove(key, nil)
	}
	c.memory.forget(keys...)
	c.local.forget(c.seq.Add(1), keys...)
}

// callError is what a write returns for an error of the client.
func callError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return ErrClosed
	case ctx.Err() != nil:
		return redisError(contextError(ctx))
	}
	return redisError(err)
}
