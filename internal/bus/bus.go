// Package bus is the one subscription of a Cache or a Locker: it tells waiters, and a local tier, that a key has changed.
//
// A message may be lost: the bus only ends waits early, and whoever waits polls as well. A local tier is told when the
// subscription comes up and when it is lost.
package bus

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Interval is how long a subscription may be silent before it is asked for a sign of life, and how long that may
// take. go-redis checks only that a ping can be written, which a connection that died silently allows for minutes.
const Interval = 3 * time.Second

const (
	minRetry = 50 * time.Millisecond
	maxRetry = 10 * time.Second
)

// The kinds of messages are their first byte. The name of a value key (or lock) is their end.
const (
	kindWake    = 'w' // a lease or lock is free
	kindChanged = 'i' // the value was set, invalidated or expired, by whom says an origin before the name
)

// OriginLen is the length of an origin in bytes.
const OriginLen = 8

// Events are functions that are called in the order of what they tell. Each may be nil.
type Events struct {
	// Changed is told who has changed a value, before waiters are woken.
	Changed func(name, origin string)
	// Live is told true whenever the subscription has come up, so that what happens from here on is heard, and false
	// when it is lost.
	Live func(live bool)
}

// Bus is safe for concurrent use. It does nothing before [Bus.Start] or the first [Bus.Wait].
type Bus struct {
	rdb     redis.UniversalClient
	channel string
	events  Events
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	telling  sync.Mutex // held while Events.Live is told, and before mu: so that the last is true
	mu       sync.Mutex
	waiters  map[string][]*Waiter   // guarded by mu: by the name that a message carries
	sessions map[*redis.Client]bool // guarded by mu: the subscriptions that were begun; true while live
	needed   int                    // guarded by mu: the subscriptions that it takes to hear everything
	started  bool                   // guarded by mu
	closed   bool                   // guarded by mu
}

// New returns a bus for a channel, without any I/O.
func New(rdb redis.UniversalClient, channel string, events Events) *Bus {
	ctx, cancel := context.WithCancel(context.Background())
	return &Bus{
		rdb: rdb, channel: channel, events: events, ctx: ctx, cancel: cancel,
		waiters: map[string][]*Waiter{}, sessions: map[*redis.Client]bool{},
	}
}

// Waiter waits for messages about one name.
type Waiter struct {
	// C receives when there is a message, and when the subscription has come up, since one may have been lost before.
	C    <-chan struct{}
	c    chan struct{} // of capacity one: signals that nobody has read yet are one signal
	all  chan struct{} // guarded by bus.mu: shared with those that were registered together; nil when alone
	bus  *Bus
	name string
}

// Wait registers a waiter and, the first time, begins the subscription. What happens after it returns is heard while the bus is live.
func (b *Bus) Wait(name string) *Waiter {
	w := b.Register(name)
	b.Start()
	return w
}

// Register registers a waiter that may not have to wait: it leaves the subscription as it is.
func (b *Bus) Register(name string) *Waiter {
	c := make(chan struct{}, 1)
	w := &Waiter{C: c, c: c, bus: b, name: name}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters[name] = append(b.waiters[name], w)
	return w
}

// RegisterAll registers a waiter for each name. any receives when one of them does.
func (b *Bus) RegisterAll(names []string) (waiters []*Waiter, any <-chan struct{}) {
	all := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		c := make(chan struct{}, 1)
		w := &Waiter{C: c, c: c, all: all, bus: b, name: name}
		b.waiters[name] = append(b.waiters[name], w)
		waiters = append(waiters, w)
	}
	return waiters, all
}

// Regroup gives waiters a channel of their own in place of the one that they share with others. It has a signal if one of
// them has.
func (b *Bus) Regroup(waiters []*Waiter) (any <-chan struct{}) {
	all := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range waiters {
		w.all = all
		if len(w.c) > 0 {
			w.signal()
		}
	}
	return all
}

// Start begins the subscription, the first time.
func (b *Bus) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.started && !b.closed {
		b.started = true
		b.startLocked()
	}
}

// Stop unregisters the waiter.
func (w *Waiter) Stop() {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	list := w.bus.waiters[w.name]
	for i, other := range list {
		if other == w {
			list[i] = list[len(list)-1]
			list[len(list)-1] = nil
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(w.bus.waiters, w.name)
	} else {
		w.bus.waiters[w.name] = list
	}
}

// signal is called with bus.mu.
func (w *Waiter) signal() {
	for _, c := range [...]chan struct{}{w.c, w.all} { // in this order: who reads the second finds the first
		select {
		case c <- struct{}{}:
		default: // it is full, or nil
		}
	}
}

// Live reports whether a message that is published now will be heard.
func (b *Bus) Live() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.liveLocked()
}

func (b *Bus) liveLocked() bool {
	for _, live := range b.sessions {
		if !live {
			return false
		}
	}
	return b.started && len(b.sessions) >= b.needed
}

// Close ends the subscription and returns when it has ended. Waiters get no more messages.
func (b *Bus) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// startLocked begins to listen. A message crosses the nodes of a cluster, but not the shards of a ring.
func (b *Bus) startLocked() {
	ring, ok := b.rdb.(*redis.Ring)
	if !ok {
		b.sessions[nil], b.needed = false, 1
		b.wg.Go(func() { b.listen(nil, b.rdb.Subscribe) })
		return
	}
	b.needed = len(ring.Options().Addrs)
	b.wg.Go(func() {
		for b.ctx.Err() == nil {
			// ForEachShard leaves out shards that are down, so the ring is gone through again and again.
			_ = ring.ForEachShard(b.ctx, func(_ context.Context, shard *redis.Client) error {
				if b.add(shard) {
					b.wg.Go(func() { b.listen(shard, shard.Subscribe) })
				}
				return nil
			})
			b.sleep(Interval)
		}
	})
}

// listen keeps one subscription up, on the given shard of a ring (nil elsewhere), until the bus or the client is closed.
func (b *Bus) listen(shard *redis.Client, subscribe func(context.Context, ...string) *redis.PubSub) {
	retry := minRetry
	for b.ctx.Err() == nil {
		lived, err := b.session(shard, subscribe)
		if errors.Is(err, redis.ErrClosed) {
			b.forget(shard) // a ring closes a shard that it no longer has
			return
		}
		if lived {
			retry = minRetry
		}
		if cluster, ok := b.rdb.(*redis.ClusterClient); ok {
			cluster.ReloadState(b.ctx) // else a master that died stays in its table for a minute
		}
		b.sleep(retry/2 + rand.N(retry))
		retry = min(2*retry, maxRetry)
	}
}

// spent is a context that has ended. A [redis.PubSub] whose connection fails makes another one before it says so, for
// as long as its context and the dial time-outs allow, and all that time the bus would pass for live. With this context
// it says so at once; on the connection that it has the context changes nothing.
var spent = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// session subscribes and hears until the connection fails. It reports whether it ever was live, and the failure.
func (b *Bus) session(shard *redis.Client, subscribe func(context.Context, ...string) *redis.PubSub) (lived bool, err error) {
	sub := subscribe(b.ctx, b.channel)
	defer sub.Close()
	defer context.AfterFunc(b.ctx, func() { sub.Close() })() // a receive does not watch its context
	defer b.set(shard, false)
	asked := false // for a sign of life
	for {
		msg, err := sub.ReceiveTimeout(spent, Interval)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := sub.Ping(spent); err != nil {
				return lived, err
			}
			continue
		default:
			return lived, err
		}
		switch msg := msg.(type) {
		case *redis.Subscription:
			lived = true
			b.set(shard, true)
			b.signalAll()
		case *redis.Message:
			b.hear(msg.Payload)
		}
	}
}

// hear takes up a message.
func (b *Bus) hear(message string) {
	switch {
	case message == "":
	case message[0] == kindWake:
		b.signal(message[1:])
	case message[0] == kindChanged && len(message) > OriginLen:
		origin, name := message[1:1+OriginLen], message[1+OriginLen:]
		if b.events.Changed != nil {
			b.events.Changed(name, origin)
		}
		b.signal(name)
	}
}

// add notes a shard to subscribe to. It reports false when that is known.
func (b *Bus) add(shard *redis.Client) (added bool) {
	b.update(func() (up bool) {
		if _, known := b.sessions[shard]; !known {
			b.sessions[shard], added = false, true
			b.needed = max(b.needed, len(b.sessions))
		}
		return false
	})
	return added
}

func (b *Bus) set(shard *redis.Client, live bool) {
	b.update(func() (up bool) { b.sessions[shard] = live; return live })
}

func (b *Bus) forget(shard *redis.Client) {
	b.update(func() (up bool) {
		delete(b.sessions, shard)
		b.needed = max(b.needed-1, 1) // the client itself may be closed
		return false
	})
}

// update changes the sessions under mu, and tells what has come of it. change reports whether one has come up.
func (b *Bus) update(change func() (up bool)) {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	before := b.liveLocked()
	up := change()
	after := b.liveLocked()
	b.mu.Unlock()
	if b.events.Live != nil && (before != after || up && after) {
		b.events.Live(after)
	}
}

func (b *Bus) signal(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.waiters[name] {
		w.signal()
	}
}

func (b *Bus) signalAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.waiters {
		for _, w := range list {
			w.signal()
		}
	}
}

func (b *Bus) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
	}
}
