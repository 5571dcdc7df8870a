package stockade

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
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
