package stockade

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/stockade-cache/stockade/internal/bus"
	"github.com/stockade-cache/stockade/internal/script"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// core is what the views of a Cache share.
type core struct {
	opts     Options // complete
	channel  string
	format   format
	notFound error // Is ErrNotFound and Options.NotFound

	nodes  *nodes
	bus    *bus.Bus
	memory memory
	local  *local                 // nil when off
	origin atomic.Pointer[string] // of the changes that this cache makes
	stats  counters

	// seq numbers arrivals of callers and sends of steps, to tell which came first. No clock could: in one instant
	// of a clock much happens.
	seq        atomic.Uint64
	filling    flights  // that fill a missing key
	refreshing registry // background refreshes
	permits    *semaphore.Weighted
	background *semaphore.Weighted // what refreshes may use of the permits
	overdue    atomic.Int64        // calls of the Guard that were given up and have not returned

	ctx     context.Context // ends with Close, cause ErrClosed
	cancel  context.CancelCauseFunc
	closed  atomic.Bool
	work    *tasks.Group // flights and loaders
	calls   *tasks.Group // calls of the client, which flights still make while they end
	closing sync.Once
}

func newCore(rdb redis.UniversalClient, opts Options, format format) *core {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &core{
		opts: opts, channel: opts.Prefix + ":wake", format: format, notFound: ErrNotFound,
		permits:    semaphore.NewWeighted(int64(opts.MaxLoads)),
		background: semaphore.NewWeighted(int64(max(opts.MaxLoads/4, 1))),
		ctx:        ctx, cancel: cancel, work: &tasks.Group{Closed: ErrClosed}, calls: &tasks.Group{Closed: ErrClosed},
	}
	if opts.NotFound != nil && !errors.Is(opts.NotFound, ErrNotFound) {
		c.notFound = fmt.Errorf("%w: %w", ErrNotFound, opts.NotFound)
	}
	c.drawOrigin()
	c.local = newLocal(opts.Local)
	c.bus = bus.New(rdb, c.channel, c.events())
	c.nodes = newNodes(rdb, opts.RedisTimeout, c.calls, c.tellRedis, c.memory.clear)
	return c
}

// close is [Cache.Close].
func (c *core) close() {
	c.closing.Do(func() {
		c.closed.Store(true)
		c.cancel(ErrClosed)
		c.nodes.close()
		c.work.Close()
		c.bus.Close()
		c.calls.Close()
	})
}

// names are the names of a key in Redis.
func (c *core) names(key string) script.Keys {
	return script.Keys{
		Value:   keyName(c.opts.Prefix, 'v', key),
		Lease:   keyName(c.opts.Prefix, 'l', key),
		Failure: keyName(c.opts.Prefix, 'e', key),
	}
}

func (c *core) tellRedis(e RedisEvent) {
	if e.Err != nil {
		c.stats.redisErrors.Add(1)
	}
	tell(c.opts.Observer.Redis, e)
}

// sight is what a read saw.
type sight struct {
	stored
	state state
	now   int64  // server ms
	raw   string // what is there, usable or not; not when it is local
	there bool
	local bool // from this process, without asking Redis
}

// seen is the head of what is there, as a step compares it; nil when nothing is.
func (s sight) seen() *string {
	if !s.there {
		return nil
	}
	head := headOf(s.raw)
	if s.local {
		head = string(s.head.append(nil))
	}
	return &head
}

// look reads a key by a trip. See [node.get] for hint and the error.
//
// A sight is handed down as a pointer where callers wait: the frames of these are what 10,000 of them take.
func (c *core) look(ctx context.Context, key string, hint bool, saw *sight) error {
	*saw = sight{}
	name := keyName(c.opts.Prefix, 'v', key)
	n, err := c.nodes.of(ctx, name)
	if err != nil {
		return err
	}
	asked := c.asks()
	value, found, err := n.get(ctx, name, hint)
	if err != nil {
		return err
	}
	if !found {
		c.local.gone(key, asked)
		return nil
	}
	return c.took(n, key, value, asked, saw)
}

// asks numbers a read of what the local tier may keep.
func (c *core) asks() uint64 {
	if c.local == nil {
		return 0
	}
	if !c.local.live.Load() {
		c.bus.Start()
	}
	return c.seq.Add(1)
}

// took takes up a value that was read at a number.
func (c *core) took(n *node, key, value string, asked uint64, saw *sight) error {
	now, known := n.clock.now()
	if !known {
		return errNoTime
	}
	*saw = c.judge(value, now/1000)
	if saw.state == fresh || saw.state == stale {
		c.local.keep(key, saw.stored, asked, n.clock)
	} else {
		c.local.gone(key, asked)
	}
	return nil
}

// errNoTime says that the first trip, which asks for the server's time too, did not get it.
var errNoTime = errors.New("the server does not tell its time")

// judge decodes a stored value and says what may be done with it.
func (c *core) judge(value string, now int64) sight {
	s := sight{now: now, raw: value, there: true}
	var err error
	s.stored, err = c.format.decode(value)
	switch {
	case err == nil:
		s.state = s.at(now)
	case errors.Is(err, errNewer):
		s.state = newer
	default:
		s.state = undecodable
		c.stats.undecodable.Add(1)
	}
	return s
}

// lend is what a caller gets of a value that can be served. What the local tier has too is shared.
func (c *core) lend(s *sight) boxed {
	if c.local == nil {
		return s.entry()
	}
	return c.share(s.entry())
}

// entry is what is known of a value that can be served.
func (s sight) entry() boxed {
	source := Hit
	switch {
	case s.state == stale:
		source = Stale
	case s.local:
		source = Local
	}
	return boxed{Value: s.value, ETag: s.etag, Source: source, Age: s.age(s.now), token: s.token}
}

// old is what a loader is given: what is stored, if it is a value that can be read.
func (s sight) old() *boxed {
	if !s.there || s.state == undecodable || s.state == newer || s.kind == kindAbsent {
		return nil
	}
	source := Kept
	switch s.state {
	case fresh:
		source = Hit
	case stale:
		source = Stale
	}
	return &boxed{Value: s.value, ETag: s.etag, Source: source, Age: s.age(s.now)}
}

// newToken returns what tells one acquisition, or one write, from every other.
func newToken() string {
	var b [script.TokenLen]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return string(b[:])
}

func isNil(rdb redis.UniversalClient) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// ended returns the error of a call whose context, or whose cache, has ended; nil when neither has, so that err is a
// failure of Redis.
func ended(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return ErrClosed
	case ctx.Err() != nil:
		return contextError(ctx)
	}
	return nil
}
