package stockade

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/stockade-cache/stockade/internal/bus"
	"github.com/stockade-cache/stockade/internal/tier"
)

// deafTTL is how long the local tier trusts what it has while nothing is heard of changes elsewhere.
const deafTTL = time.Second

// local is the local tier of a cache. All its methods may be called on nil: it is off then. Safe for concurrent use.
type local struct {
	tier  *tier.Tier    // of *localEntry
	ttl   time.Duration // at most; zero for as long as an entry is fresh
	start time.Time     // when local time is zero
	live  atomic.Bool   // changes elsewhere are heard of
}

// localEntry is a decoded entry, with what the time was when it came.
type localEntry struct {
	stored
	at    time.Duration // local time
	now   int64         // the server's at that moment, µs
	until time.Duration // local time until which it is served without asking Redis
	half  time.Duration // local time before which no hit elects a refresh
}

func newLocal(opts LocalOptions) *local {
	if opts.Entries == 0 {
		return nil
	}
	return &local{tier: tier.New(opts.Entries), ttl: opts.TTL, start: time.Now()}
}

func (l *local) entry(key string) *localEntry {
	e, _ := l.tier.Get(key).(*localEntry)
	return e
}

// get returns what is to be served without asking Redis, nil for nothing, and the local time.
func (l *local) get(key string) (e *localEntry, now time.Duration) {
	if l == nil {
		return nil, 0
	}
	live := l.live.Load() // before: when it comes up, what is not to be trusted goes first
	if e = l.entry(key); e == nil {
		return nil, 0
	}
	now = time.Since(l.start)
	if now >= e.until || now-e.at >= deafTTL && !live {
		return nil, 0
	}
	return e, now
}

// kept returns what may be served when Redis fails, nil for nothing.
func (l *local) kept(key string) (e *localEntry, now time.Duration) {
	if l == nil {
		return nil, 0
	}
	if e = l.entry(key); e == nil {
		return nil, 0
	}
	now = time.Since(l.start)
	if e.stored.at(e.server(now)/1000) == missing {
		return nil, 0
	}
	return e, now
}

// server is the server's time in µs at a local time.
func (e *localEntry) server(now time.Duration) int64 { return e.now + (now - e.at).Microseconds() }

// sight is what a read of the tier saw.
func (e *localEntry) sight(now time.Duration) sight {
	ms := e.server(now) / 1000
	return sight{stored: e.stored, state: e.stored.at(ms), now: ms, there: true, local: true}
}

// tryLocal is the path of a read as far as the local tier, whose value it returns if that has one to serve. It is what a hit
// there takes, so it copies nothing.
func (c *view) tryLocal(ctx context.Context, key string, load source) (held *localEntry, now time.Duration, err error) {
	if err := c.checkRead(ctx, key, load); err != nil {
		return nil, 0, err
	}
	if held, now = c.local.get(key); held == nil {
		return nil, 0, nil
	}
	renew, err := c.serveLocal(held, now)
	if renew {
		saw := held.sight(now)
		c.refresh(ctx, key, load, &saw)
	}
	return held, now, err
}

// serveLocal is serve for what the local tier has.
func (c *view) serveLocal(held *localEntry, now time.Duration) (renew bool, err error) {
	if held.kind == kindAbsent {
		c.stats.absent.Add(1)
		return false, c.notFound
	}
	c.stats.local.add()
	if now < held.half {
		return false, nil
	}
	return elected(held.server(now), held.begin(), held.freshUntil*1000, held.cost, c.policy.EarlyRefresh, rand.Float64()), nil
}

// keep takes what Redis has of a key. number was taken before Redis was asked, and clock is that of the key's node.
func (l *local) keep(key string, s stored, number uint64, clock *clock) {
	if l == nil || len(key) > maxPlainKey { // messages do not tell a long key
		return
	}
	at := time.Since(l.start) // before the server's time is read: nothing is kept for longer than it may
	now, known := clock.now()
	if !known {
		return
	}
	localTime := func(us int64) time.Duration { return at + time.Duration(us-now)*time.Microsecond }
	e := localEntry{
		stored: s, at: at, now: now,
		until: localTime(s.freshUntil * 1000), half: localTime((s.begin() + s.freshUntil*1000) / 2),
	}
	if l.ttl > 0 {
		e.until = min(e.until, at+l.ttl)
	}
	l.tier.Put(key, &e, number)
}

// gone drops what was read before a read that found nothing to be served: nobody may have heard of the change. number is
// that of this read.
func (l *local) gone(key string, number uint64) {
	if l != nil && l.tier.Get(key) != nil {
		l.tier.Put(key, &localEntry{}, number) // is over, and keeps out what was read before
	}
}

// forget drops keys that have changed, at a number that was taken after that.
func (l *local) forget(number uint64, keys ...string) {
	if l == nil {
		return
	}
	for _, key := range keys {
		l.tier.Forget(key, number)
	}
}

// keepLocal takes what Redis has of a key that a flight has met, or stored.
func (f *flight) keepLocal(s stored, number uint64) {
	if f.local == nil {
		return
	}
	if n, err := f.nodes.of(f.ctx, f.names.Value); err == nil {
		f.local.keep(f.key, s, number, n.clock)
	}
}

// events is what the bus tells the local tier.
func (c *core) events() bus.Events {
	if c.local == nil {
		return bus.Events{}
	}
	return bus.Events{Changed: c.heard, Live: c.listens}
}

// heard is told of a change by any process. This one's own need not be applied again.
func (c *core) heard(name, origin string) {
	if origin == *c.origin.Load() {
		return
	}
	if key, ok := keyOf(c.opts.Prefix, name); ok {
		c.local.forget(c.seq.Add(1), key)
	}
}

// listens is told whether changes are heard of. Those that were not are made up for by dropping everything.
func (c *core) listens(live bool) {
	if live {
		c.local.tier.ForgetAll(c.seq.Add(1))
	}
	c.local.live.Store(live)
}

// drawOrigin draws the origin of what this cache tells of the changes that it makes.
func (c *core) drawOrigin() {
	var b [bus.OriginLen]byte
	_, _ = crand.Read(b[:])
	origin := string(b[:])
	c.origin.Store(&origin)
}

// recall returns what this process has of a key when Redis fails.
func (c *core) recall(key string) (e boxed, err error, ok bool) {
	if e, err, ok := c.memory.recall(key); ok {
		if err == nil {
			c.stats.local.add()
		}
		return e, err, true
	}
	kept, now := c.local.kept(key)
	if kept == nil {
		return boxed{}, nil, false
	}
	saw := kept.sight(now)
	switch {
	case saw.kind == kindAbsent:
		c.stats.absent.Add(1)
		return boxed{}, c.notFound, true
	case saw.state == stale:
		c.stats.stale.Add(1)
	default:
		c.stats.local.add()
	}
	return saw.entry(), nil, true
}
