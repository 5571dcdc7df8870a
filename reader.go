package stockade

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/tasks"
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
		t, i, ours, own := n.board(ctx, name, &arrived)
		if t == nil {
			return "", false, ErrClosed
		}
		if own {
			n.flyOwn(t)
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

// getMany is get for many names, with hint: they board together. The replies are the names', in their order.
func (n *node) getMany(ctx context.Context, names []string) []reply {
	replies := make([]reply, len(names))
	fail := func(which []int, err error) []reply {
		for _, i := range which {
			replies[i] = reply{err: err}
		}
		return replies
	}
	todo := make([]int, len(names))
	for i := range todo {
		todo[i] = i
	}
	if err := n.pass(); err != nil {
		return fail(todo, err)
	}
	arrived := unknownArrival
	places := make([]place, len(names))
	ours := make([]bool, len(names))
	for len(todo) > 0 {
		n.mu.Lock()
		for _, i := range todo {
			places[i].trip, places[i].i, ours[i] = n.boardLocked(names[i], &arrived)
		}
		n.callLocked()
		n.mu.Unlock()
		var again []int
		for at, i := range todo {
			t := places[i].trip
			if t == nil {
				return fail(todo[at:], ErrClosed)
			}
			select {
			case <-t.done:
			case <-ctx.Done():
				return fail(append(again, todo[at:]...), contextError(ctx))
			}
			switch {
			case t.err != nil:
				replies[i] = reply{err: t.err}
			default:
				if replies[i] = t.reply(places[i].i); !ours[i] && replies[i].err == nil && replies[i].found {
					again = append(again, i)
				}
			}
		}
		todo = again
	}
	return replies
}

const unknownArrival = ^uint64(0)

// board finds a name a place in a trip, see boardLocked. own says that the caller makes the trip itself.
func (n *node) board(ctx context.Context, name string, arrived *uint64) (t *trip, i int, ours, own bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, i, ours = n.boardLocked(name, arrived)
	if t != nil && t.number == 0 && i == 0 && n.goesItselfLocked(ctx) {
		n.called = true
		return t, i, ours, true
	}
	n.callLocked()
	return t, i, ours, false
}

// boardLocked finds a name a place in a trip; callLocked comes next. ours is false when that trip had left before the
// call: its value may be outdated, but two trips need not carry one key at once. arrived is how many trips had left when
// the call began.
func (n *node) boardLocked(name string, arrived *uint64) (t *trip, i int, ours bool) {
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
	return t, i, true
}

// goesItselfLocked reports whether the first caller of the last gathering trip makes it: it saves handing over to a
// flusher, which is much of what a lone read costs beyond a GET. The client must end calls at their deadline, and the
// caller have as much time as its passengers. Large values do not wait for a flusher at all.
func (n *node) goesItselfLocked(ctx context.Context) bool {
	if !n.obeys {
		return false
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < n.timeout {
		return false
	}
	return n.roomLocked() == 1 || len(n.gathering) == 1 && !n.called && n.mayLeaveLocked()
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
		if !n.calls.Run(f.run) {
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
	own  bool      // a caller, which makes one trip
	trip *trip     // guarded by node.mu: the one that is out
	left time.Time // guarded by node.mu: when it left
}

func (f *flusher) run() {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		t := n.takeLocked()
		if t == nil || !f.flyLocked(t) {
			return
		}
	}
}

// flyOwn makes a trip on the goroutine of its first caller, unless a flusher has taken it meanwhile.
func (n *node) flyOwn(t *trip) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gatherLocked()
	if i := slices.Index(n.gathering, t); i >= 0 && n.calls.Begin() { // not after Close, which lands it
		defer n.calls.End()
		n.gathering = slices.Delete(n.gathering, i, i+1)
		t.own = flusher{node: n, own: true}
		t.own.flyLocked(t)
		n.callLocked()
	}
}

// flyLocked makes a trip. It reports false when that took too long: the trip was given up.
func (f *flusher) flyLocked(t *trip) bool {
	n := f.node
	n.departed++
	t.number = n.departed
	f.trip, f.left = t, time.Now()
	t.until = f.left.Add(n.timeout)
	n.out[f] = struct{}{}
	n.keysOut += len(t.names())
	n.watching = n.watching || n.calls.Run(n.watch)
	n.called = false
	n.callLocked()
	n.mu.Unlock()
	n.trips.Add(1)
	n.tripKeys.Add(uint64(len(t.names())))

	ctx := n.ctx
	if n.obeys {
		ctx = t
	}
	err := n.unbroken(t.until, func() error { return n.fly(ctx, t) })

	n.mu.Lock()
	if _, waited := n.out[f]; !waited {
		return false
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
	return true
}

// takeLocked waits for a trip that may leave; nil says that the node is closed.
func (n *node) takeLocked() *trip {
	for !n.closed {
		if !n.mayLeaveLocked() {
			n.called = false
			n.idle++
			n.work.Wait()
			n.idle--
			continue
		}
		n.gatherLocked()
		if n.mayLeaveLocked() {
			t := n.gathering[0]
			n.gathering = slices.Delete(n.gathering, 0, 1)
			return t
		}
	}
	return nil
}

// gatherLocked lets callers board the trip that is about to leave, while they come: those whom a trip has just woken
// are about to ask again.
func (n *node) gatherLocked() {
	boardings := uint64(0)
	for range maxYields {
		if boardings == n.boardings || !n.mayLeaveLocked() || n.fullLocked() {
			return
		}
		boardings = n.boardings
		n.mu.Unlock()
		runtime.Gosched()
		n.mu.Lock()
	}
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
			if !f.own {
				n.flushers--
			}
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
	err := tasks.TimeoutError{After: n.timeout}
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
