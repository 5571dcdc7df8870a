// Package stockade stops cache stampedes: a read-through cache on Redis that lets one load per key run in the whole
// fleet, serves everyone else at once, and never leaves an outdated value behind an invalidation. Its lock ([Locker])
// is useful alone.
//
//	cache, err := stockade.New[Product](rdb, stockade.Options{Prefix: "product"})
//	product, err := cache.Get(ctx, id, func(ctx context.Context) (Product, error) { return db.Product(ctx, id) })
//
// # Consistency
//
// A value whose load began before an acknowledged [Cache.Invalidate] is never stored after it and never returned to a
// read that began after it, on any instance; with [Options.Local], on another instance once it has heard of it, which
// takes about a round trip. A TTL is an upper bound: jitter only shortens it. Values that concurrent callers of one key
// get, and those in the local tier, are shared: treat them as read-only, or give T a method Clone() T, which is then
// called for every caller.
//
// # When Redis is down
//
// Calls stop waiting for a node that does not answer, and load locally, one load a key and process, remembered for a
// second; or they return [ErrRedis], by [Options.WhenRedisFails]: with [ReturnError] nothing is remembered. What the local
// tier has is served first. It works again by itself. A process that alone has lost Redis does not hear of invalidations
// elsewhere: what it remembers may be a second old, and what the local tier has as old as TTL + StaleFor.
//
// # Locks and fencing
//
// A lock can be lost while its holder still works: the process may be stopped for longer than the lock lives. Hand
// [Lock.Fence] to the resource and let it refuse a smaller number than it has seen.
package stockade

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// Loader reads a value from its source. Its context has the values of the first caller's, not its cancellation, and
// ends at [Options.LoadTimeout]: the load belongs to the cache and goes on when all callers have left. It returns an
// error that Is [ErrNotFound] (or [Options.NotFound]) for a key that does not exist.
type Loader[T any] func(ctx context.Context) (T, error)

// EntryLoader is a [Loader] that chooses lifetimes, may reuse what it is given, and may refuse storing. old is what is
// stored, or nil. Its Source is Hit or Stale when it is refreshed while callers are served old, and Kept when they wait for
// the loader. [ErrNotModified] says that old still stands: it is stored anew, with the non-zero
// lifetimes of the returned entry, and keeps its ETag.
type EntryLoader[T any] func(ctx context.Context, old *Entry[T]) (Entry[T], error)

// Entry is a value with what is known about it.
type Entry[T any] struct {
	Value    T
	TTL      time.Duration // fresh lifetime; zero means the view's; at least 1 ms
	StaleFor time.Duration // zero means the view's; negative none
	KeepFor  time.Duration // zero means the view's; negative none
	NoStore  bool          // hand it to the callers of this flight, store nothing, leave what is kept
	ETag     string        // validator for the next load
	Age      time.Duration // set by the cache: since the load began
	Source   Source        // set by the cache

	token string // of the write that stored it; empty when it is not from Redis
}

// Source says where an entry came from.
type Source uint8

const (
	Hit    Source = iota // fresh from Redis
	Loaded               // this call loaded it
	Joined               // a load of this process that another call began
	Remote               // another process loaded it while this one waited
	Local                // from this process, without Redis
	Stale                // past its TTL
	Kept                 // past StaleFor: only the old of an EntryLoader
)

func (s Source) String() string {
	return [...]string{"hit", "loaded", "joined", "remote", "local", "stale", "kept"}[s]
}

// Cache is a read-through cache of values of one type. It is safe for concurrent use. Close it when it is not needed
// any more; the client stays open.
type Cache[T any] struct {
	view view // not embedded: every T would have a copy of each of its methods
}

// view is a Cache without its type.
type view struct {
	*core
	policy Policy // complete
	err    error  // of an invalid With
}

// New returns a cache on a client of any kind. It does no I/O and starts no goroutine. The error names the field and the
// value that it refuses.
func New[T any](rdb redis.UniversalClient, opts Options) (*Cache[T], error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	if isNil(rdb) {
		return nil, configError("client", rdb, "a go-redis client is required")
	}
	return &Cache[T]{view{core: newCore(rdb, opts, newFormat[T](opts.Codec)), policy: opts.policy()}}, nil
}

// Get returns the value of a key, from Redis or from one load in the fleet. A stale value whose refresh fails is
// returned with a nil error, and the failure goes to the Observer. Errors: one that Is [ErrNotFound], a *[LoadError],
// [ErrLoadTimeout], [ErrOverloaded], [ErrReentrant], [ErrRedis] (by policy), [ErrClosed], or ctx's. It never returns a
// zero value with a nil error unless the loader or Set gave exactly that.
func (c *Cache[T]) Get(ctx context.Context, key string, load Loader[T]) (T, error) {
	ptr, err := c.view.value(ctx, key, load.source())
	return unboxed[T](ptr), err
}

// Fetch is Get for a loader that works on entries. See [EntryLoader].
func (c *Cache[T]) Fetch(ctx context.Context, key string, load EntryLoader[T]) (Entry[T], error) {
	e, err := c.view.fetch(ctx, key, load.source())
	return unbox[T](e), err
}

// value is the path of a read that wants no more than the value. What a hit in the local tier takes copies nothing.
func (c *view) value(ctx context.Context, key string, load source) (ptr any, err error) {
	var e boxed
	if c.opts.Observer.TraceReads {
		e, err = c.fetch(ctx, key, load)
		return e.Value, err
	}
	held, _, err := c.tryLocal(ctx, key, load)
	switch {
	case err != nil:
		return nil, err
	case held != nil:
		return c.format.of.own(held.value), nil
	}
	e, err = c.read(ctx, key, load, "")
	return e.Value, err
}

// fetch is the path of a read.
func (c *view) fetch(ctx context.Context, key string, load source) (boxed, error) {
	return c.traceRead(ctx, key, func(ctx context.Context) (boxed, error) {
		held, now, err := c.tryLocal(ctx, key, load)
		switch {
		case err != nil:
			return boxed{}, err
		case held != nil:
			saw := held.sight(now)
			return c.lend(&saw), nil
		}
		return c.read(ctx, key, load, "")
	})
}

// read is the path of a read from Redis on. What the write of token stored counts as missing.
func (c *view) read(ctx context.Context, key string, load source, token string) (boxed, error) {
	var begun time.Time
	if c.opts.Observer.Trace != nil {
		begun = time.Now()
	}
	var saw sight
	e, found, err := c.seek(ctx, key, load, token, &saw)
	if found || err != nil {
		return e, err
	}
	c.stats.misses.Add(1)
	if c.opts.Observer.Trace != nil {
		return c.traceMiss(ctx, key, load, token, &saw, begun)
	}
	e, _, err = c.miss(ctx, key, load, token, &saw)
	return e, err
}

// seek looks for something to serve. It has found nothing when the error is nil, too: then the key is missing.
func (c *view) seek(ctx context.Context, key string, load source, token string, saw *sight) (e boxed, found bool, err error) {
	if c.filling.has(key) { // a key that is being filled is missing: join without asking Redis
		*saw = sight{}
		return e, false, nil
	}
	err = c.look(ctx, key, true, saw)
	switch {
	case err != nil:
		if err := ended(ctx, err); err != nil {
			return e, false, err
		}
		// Redis has failed. What is not remembered the flight decides, by policy.
		if e, err, found = c.recall(key); found {
			e = c.share(e)
		}
		return e, found, err
	case saw.isBy(token):
		saw.state = missing
		return e, false, nil
	}
	e, renew, found, err := c.serve(saw)
	if renew {
		c.refresh(ctx, key, load, saw)
	}
	return e, found, err
}

// miss gets what is missing from the flight of its key. shared is the context of the flight's first caller, when that is
// another.
func (c *view) miss(ctx context.Context, key string, load source, token string, saw *sight) (e boxed, shared context.Context, err error) {
	var last *LoadError // of a flight whose load began before this call
	for {
		flight, err := c.join(ctx, key, load, saw)
		if err != nil {
			return e, flight.shared, err
		}
		if flight.fits {
			if !flight.mine {
				c.stats.joined.Add(1)
			}
			e, err = c.answer(flight, last)
			return e, flight.shared, err
		}
		last = asLoadError(flight.err)
		var found bool
		if e, found, err = c.seek(ctx, key, load, token, saw); found || err != nil {
			return e, nil, err
		}
	}
}

// serve says what a reader gets of what is stored, and whether that is to be refreshed; found is false when it is missing.
func (c *view) serve(saw *sight) (e boxed, renew, found bool, err error) {
	switch {
	case saw.state == fresh && saw.kind == kindAbsent:
		c.stats.absent.Add(1)
		return boxed{}, false, true, c.notFound
	case saw.state == fresh:
		c.stats.hits.Add(1)
		renew = elected(saw.now*1000, saw.begin(), saw.freshUntil*1000, saw.cost, c.policy.EarlyRefresh, rand.Float64())
		return c.lend(saw), renew, true, nil
	case saw.state == stale:
		c.stats.stale.Add(1)
		return c.lend(saw), true, true, nil
	}
	return boxed{}, false, false, nil
}

// Lookup returns what is stored and never loads: a fresh or stale entry, [ErrNotFound] for a key that is known not to
// exist, [ErrMiss] when nothing is known, [ErrRedis] when Redis fails, whatever the policy.
func (c *Cache[T]) Lookup(ctx context.Context, key string) (Entry[T], error) {
	e, err := c.view.traceRead(ctx, key, func(ctx context.Context) (boxed, error) { return c.view.lookup(ctx, key) })
	return unbox[T](e), err
}

func (c *view) lookup(ctx context.Context, key string) (boxed, error) {
	if err := c.check(ctx); err != nil {
		return boxed{}, err
	}
	var saw sight
	if held, now := c.local.get(key); held != nil {
		saw = held.sight(now)
	} else {
		var err error
		if err = c.look(ctx, key, false, &saw); err != nil {
			if err := ended(ctx, err); err != nil {
				return boxed{}, err
			}
			return boxed{}, redisError(err)
		}
	}
	switch {
	case saw.state == fresh && saw.kind == kindAbsent:
		return boxed{}, c.notFound
	case saw.state == fresh, saw.state == stale:
		return c.lend(&saw), nil
	}
	return boxed{}, ErrMiss
}

// With returns a view of the cache with other lifetimes. It shares everything else, flights too: a flight has the
// lifetimes of the view that started it. An invalid policy shows as an error on every call of the view.
func (c *Cache[T]) With(p Policy) *Cache[T] {
	policy, err := c.view.policy.with(p)
	if c.view.err != nil {
		err = c.view.err
	}
	return &Cache[T]{view{core: c.view.core, policy: policy, err: err}}
}

// Close ends the cache, for all its views: running flights are cancelled and give their leases back, their callers and
// all later calls get [ErrClosed]. It returns when every loader and every call of the client has returned, so a loader
// must not call it. It may be called again. The client stays open.
func (c *Cache[T]) Close() error {
	c.view.close()
	return nil
}

// Wrap turns a function of a repository into a cached one with the same signature. key must give different keys to
// different arguments.
func Wrap[K, T any](c *Cache[T], key func(K) string, load func(context.Context, K) (T, error)) func(context.Context, K) (T, error) {
	return func(ctx context.Context, k K) (T, error) {
		return c.Get(ctx, key(k), func(ctx context.Context) (T, error) { return load(ctx, k) })
	}
}

// check refuses a call that cannot be answered.
func (c *view) check(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errNilContext
	case c.err != nil:
		return c.err
	case c.closed.Load():
		return ErrClosed
	case ctx.Err() != nil:
		return contextError(ctx)
	}
	return nil
}

// checkRead refuses a read that cannot be answered.
func (c *view) checkRead(ctx context.Context, key string, load source) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if load.loader == nil {
		return errNilLoader
	}
	if c.stats.loading.Load() > 0 && loadingIn(ctx).has(c.core, key) {
		return ErrReentrant
	}
	return nil
}
