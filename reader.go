package stockade

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/script"
)

const (
	// tripsInFlight is how many trips of a node may be on the wire at once.
	tripsInFlight = 8
	// maxYields bounds how often a trip that may leave lets others board first.
	maxYields = 4
	// tripBytes is how much one trip should carry, by the size of the values that came lately: large values must not
	// wait for each other.
	tripBytes = 64 << 10
	// maxTripKeys bounds the time that one MGET holds up a server.
	maxTripKeys = 512
)

// node is one server that holds keys: its clock, its breaker, and the trips that read from it. Safe for concurrent use.
type node struct {
	*nodes
	breaker
	clock *clock
	addr  string                                   // empty where the client has one server
	rdb   redis.UniversalClient                    // reaches this server alone
	fly   func(ctx context.Context, t *trip) error // makes one round trip

	mu        sync.Mutex
	work      sync.Cond             // on mu: a trip may leave, or the node is closed
	gathering []*trip               // guarded by mu: the last one takes more keys, those before it are full
	places    map[string]place      // guarded by mu: of the names that gather or are out
	boardings uint64                // guarded by mu: of callers, since the start
	out       map[*flusher]struct{} // guarded by mu: on the wire, and waited for
	keysOut   int                   // guarded by mu: that those carry
	idle      int                   // guarded by mu: flushers that wait for work
	called    bool                  // guarded by mu: one comes for the trip that may leave
	flushers  int                   // guarded by mu: idle, coming or out
	closed    bool                  // guarded by mu
	watching  bool                  // guarded by mu: watch runs
	gone      chan struct{}         // closed with closed
	departed  uint64                // guarded by mu: trips that have left
	size      int                   // guarded by mu: moving mean of the bytes of a value
}

// trip is one round trip: the reads that were gathered while earlier ones were out. A caller never joins a trip that
// has left: a read that begins after a write was acknowledged must see it.
type trip struct {
	args   []any  // the command line of an MGET: the names follow the first
	two    [2]any // where args begin: most trips carry one name
	one    reply  // the reply, when there is one name
	values []any  // the replies, when there are several: a string, an error, or nil for a key that does not exist
	err    error
	number uint64        // of its departure, zero before it; guarded by node.mu
	done   chan struct{} // closed when the replies or err are set
}

// place is where a name has boarded.
type place struct {
	trip *trip
	i    int // among its names
}

// reply is what a trip brought for one name.
type reply struct {
	value string
	found bool
	err   error
}

func newTrip() *trip {
	t := &trip{done: make(chan struct{})}
	t.args = t.two[:1]
	return t
}

// reply returns what the trip brought for the name at i.
func (t *trip) reply(i int) reply {
	if t.values == nil {
		return t.one
	}
	switch v := t.values[i].(type) {
	case string:
		return reply{value: v, found: true}
	case error:
		return reply{err: v}
	}
	return reply{}
}

// get reads a value. An error is ctx's, or says that Redis failed. With hint, "not found" may be as old as a trip that
// left before the call: it is for who asks Redis once more before acting on it.
func (n *node) get(ctx context.Context, name string, hint bool) (value string, found bool, err error) {
	if err := n.pass(); err != nil {
		return "", false, err
	}
	arrived := unknownArrival
	for {
		t, i, ours := n.board(name, &arrived)
		if t == nil {
			return "", false, ErrClosed
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return "", false, contextError(ctx)
		}
		if t.err != nil {
			return "", false, t.err
		}
		r := t.reply(i)
		if ours || r.err != nil || hint && !r.found {
			return r.value, r.found, r.err
		}
	}
}

const unknownArrival = ^uint64(0)

// board finds a name a place in a trip. ours is false when that trip had left before the call: its value may be
// outdated, but two trips need not carry one key at once. arrived is how many trips had left when the call began.
func (n *node) board(name string, arrived *uint64) (t *trip, i int, ours bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, 0, false
	}
	if *arrived == unknownArrival {
		*arrived = n.departed
	}
	n.boardings++
	if p, ok := n.places[name]; ok {
		return p.trip, p.i, p.trip.number == 0 || p.trip.number > *arrived
	}
	if last := len(n.gathering) - 1; last >= 0 && len(n.gathering[last].args) <= n.roomLocked() {
		t = n.gathering[last]
	} else {
		t = newTrip()
		n.gathering = append(n.gathering, t)
	}
	i = len(t.names())
	t.args = append(t.args, name)
	n.places[name] = place{t, i}
	n.callLocked()
	return t, i, true
}

// callLocked sees to it that a trip that may leave does.
func (n *node) callLocked() {
	if n.called || !n.mayLeaveLocked() {
		return
	}
	switch {
	case n.idle > 0:
		n.work.Signal()
	case n.flushers < tripsInFlight:
		f := &flusher{node: n}
		if !n.tasks.run(f.run) {
			return
		}
		n.flushers++
	default:
		return // those that are out look when they return
	}
	n.called = true
}

// mayLeaveLocked reports whether the first of the gathering trips may leave: when none is out; beside others when it is
// full, or has half as many keys as they carry. So few callers do not wait for each other, and many share
// (docs/decisions.md).
func (n *node) mayLeaveLocked() bool {
	switch {
	case len(n.gathering) == 0 || len(n.out) >= tripsInFlight:
		return false
	case len(n.out) == 0 || n.fullLocked():
		return true
	}
	return 2*len(n.gathering[0].names()) >= n.keysOut
}

// fullLocked reports whether the first of the gathering trips takes no more keys.
func (n *node) fullLocked() bool { return len(n.gathering[0].names()) >= n.roomLocked() }

// roomLocked is how many keys a trip may carry.
func (n *node) roomLocked() int {
	return min(max(tripBytes/max(n.size, 1), 1), maxTripKeys)
}

func (t *trip) names() []any { return t.args[1:] }

func (t *trip) land(err error) {
	t.err = err
	close(t.done)
}

// flusher makes the trips of a node. It is long-lived, since a goroutine for each trip would grow its stack anew; and
// the callers do not make them, so that each can leave at its own deadline.
type flusher struct {
	node *node
	trip *trip     // guarded by node.mu: the one that is out
	left time.Time // guarded by node.mu: when it left
}

func (f *flusher) run() {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		t := n.takeLocked()
		if t == nil {
			return
		}
		n.departed++
		t.number = n.departed
		f.trip, f.left = t, time.Now()
		n.out[f] = struct{}{}
		n.keysOut += len(t.names())
		n.watching = n.watching || n.tasks.run(n.watch)
		n.called = false
		n.callLocked()
		n.mu.Unlock()
		n.trips.Add(1)
		n.tripKeys.Add(uint64(len(t.names())))

		ctx, until := n.ctx, f.left.Add(n.timeout)
		if n.obeys {
			ctx = deadlineContext{ctx, until}
		}
		err := n.unbroken(until, func() error { return n.fly(ctx, t) })

		n.mu.Lock()
		if _, waited := n.out[f]; !waited {
			return // given up; another has taken this flusher's place
		}
		n.returnedLocked(f)
		if err == nil {
			for i := range t.names() {
				if r := t.reply(i); r.found {
					n.size += (len(r.value) - n.size) / 8
				}
			}
		}
		n.mu.Unlock()
		n.note("read", err) // before anybody wakes: who then asks Redis for more must not wait again
		t.land(err)
		n.mu.Lock()
	}
}

// takeLocked waits for a trip that may leave; nil says that the node is closed.
func (n *node) takeLocked() *trip {
	yields, boardings := 0, uint64(0)
	for !n.closed {
		switch {
		case !n.mayLeaveLocked():
			n.called = false
			n.idle++
			n.work.Wait()
			n.idle--
			yields = 0
		case yields < maxYields && boardings != n.boardings && !n.fullLocked():
			// Callers whom a trip has just woken are about to ask again: while they come, let them.
			yields, boardings = yields+1, n.boardings
			n.mu.Unlock()
			runtime.Gosched()
			n.mu.Lock()
		default:
			t := n.gathering[0]
			n.gathering = slices.Delete(n.gathering, 0, 1)
			return t
		}
	}
	return nil
}

// watch ends the wait for trips that the server or the client holds for too long, while there are trips. One timer for
// all of them costs a read nothing.
func (n *node) watch() {
	timer := time.NewTimer(n.timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-n.gone:
			return
		}
		var late []*trip
		n.mu.Lock()
		next := n.timeout
		for f := range n.out {
			if left := time.Until(f.left.Add(n.timeout)); left > 0 {
				next = min(next, left)
				continue
			}
			// The flusher is lost for as long as they hold its call: another may take its place.
			n.returnedLocked(f)
			n.flushers--
			late = append(late, f.trip)
		}
		n.watching = len(n.out) > 0
		watching := n.watching
		n.mu.Unlock()
		if len(late) > 0 {
			n.giveUp(late)
		}
		if !watching {
			return
		}
		timer.Reset(next)
	}
}

// giveUp fails trips whose time is over.
func (n *node) giveUp(late []*trip) {
	err := timeoutError{n.timeout}
	n.note("read", err) // as in run
	for _, t := range late {
		t.land(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.callLocked()
}

// turnAway fails the reads that wait for a trip, and on close also those that are out.
func (n *node) turnAway(err error, last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.gathering {
		n.unboardLocked(t)
		t.land(err)
	}
	n.gathering = nil
	if last && !n.closed {
		n.closed = true
		close(n.gone)
		for f := range n.out {
			n.returnedLocked(f)
			f.trip.land(err)
		}
		n.work.Broadcast()
	}
}

// returnedLocked is for a trip that is no longer waited for on the wire.
func (n *node) returnedLocked(f *flusher) {
	delete(n.out, f)
	n.keysOut -= len(f.trip.names())
	n.unboardLocked(f.trip)
}

func (n *node) unboardLocked(t *trip) {
	for _, name := range t.names() {
		delete(n.places, name.(string))
	}
}

// deadlineContext adds a deadline to a context without the cost of a timer: go-redis looks only at that, and only with
// ContextTimeoutEnabled.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// flyMulti makes a trip as one MGET (a GET for one key), with a TIME before it when the clock needs one.
func (n *node) flyMulti(ctx context.Context, t *trip) error {
	if len(t.args) == 2 {
		return n.flySingle(ctx, t)
	}
	t.args[0] = "mget"
	cmd := redis.NewSliceCmd(ctx, t.args...)
	if err := n.send(ctx, cmd); err != nil {
		return err
	}
	t.values = cmd.Val()
	if len(t.values) != len(t.names()) {
		return fmt.Errorf("%d values for %d keys", len(t.values), len(t.names()))
	}
	return nil
}

func (n *node) flySingle(ctx context.Context, t *trip) error {
	t.args[0] = "get"
	cmd := redis.NewStringCmd(ctx, t.args...)
	switch err := n.send(ctx, cmd); {
	case err == nil:
		t.one = reply{value: cmd.Val(), found: true}
	case !errors.Is(err, redis.Nil) && !isForeign(err):
		return err
	}
	return nil
}

// isForeign reports whether a key holds something that is no string. To a read it is missing, as it is to MGET; the
// acquire that follows will be refused, so that it is never overwritten.
func isForeign(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// send sends a reading command. A pipeline passes around go-redis's client-side cache.
func (n *node) send(ctx context.Context, cmd redis.Cmder) error {
	sample := n.clock.old()
	if !sample && !n.cached {
		return n.rdb.Process(ctx, cmd)
	}
	pipe := n.rdb.Pipeline()
	var now *redis.TimeCmd
	if sample {
		now = pipe.Time(ctx)
	}
	_ = pipe.Process(ctx, cmd)
	sent := time.Now()
	_, _ = pipe.Exec(ctx) // each command has its own error
	if now != nil && now.Err() == nil {
		n.clock.sample(sent, now.Val().UnixMicro())
	}
	return cmd.Err()
}

// flyPipelined makes a trip as a pipeline of GETs, for the nodes of a cluster, where an MGET may not cross slots.
func (n *node) flyPipelined(ctx context.Context, t *trip) error {
	pipe := n.rdb.Pipeline()
	var now *redis.TimeCmd
	if n.clock.old() {
		now = pipe.Time(ctx)
	}
	cmds := make([]*redis.StringCmd, len(t.names()))
	for i, name := range t.names() {
		cmds[i] = pipe.Get(ctx, name.(string))
	}
	sent := time.Now()
	_, _ = pipe.Exec(ctx) // each command has its own error
	if now != nil && now.Err() == nil {
		n.clock.sample(sent, now.Val().UnixMicro())
	}
	t.values = make([]any, len(cmds))
	for i, cmd := range cmds {
		switch err := cmd.Err(); {
		case err == nil:
			t.values[i] = cmd.Val()
		case errors.Is(err, redis.Nil), isForeign(err):
		case isTransport(err):
			return err
		default:
			// MOVED, ASK, a node that has left: once more through the cluster's client, which follows.
			n.reload()
			value, found, err := script.Get(ctx, n.nodes.rdb, cmd.Args()[1].(string))
			switch {
			case err != nil && isTransport(err):
				return err
			case err != nil:
				t.values[i] = err
			case found:
				t.values[i] = value
			}
		}
	}
	return nil
}
