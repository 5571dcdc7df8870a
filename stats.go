package stockade

import (
	"sync/atomic"
	"unsafe"
)

// Stats counts what a Cache has done since New, in this process. Reads of stale, absent and missing keys are no Hits.
type Stats struct {
	Hits        uint64 // fresh values from Redis
	Stale       uint64 // stale values, served while they are refreshed
	Local       uint64 // values from this process, without Redis
	Absent      uint64 // keys that were known not to exist
	Misses      uint64 // reads that found nothing to serve
	Joined      uint64 // of the Misses: those that shared the load or wait of another call
	Waits       uint64 // waits for another process's load
	Wakes       uint64 // messages that ended a wait
	Polls       uint64 // questions of a waiter that no message had woken
	RuledOut    uint64 // loads that were not begun, since the Guard said that the key cannot exist
	GuardErrors uint64 // questions to the Guard that it did not answer
	Loads       uint64 // loads that were begun
	LoadErrors  uint64 // loads that failed
	Refreshes   uint64 // of the Loads: those in the background
	Skipped     uint64 // refreshes that were not begun, since too many loads ran or another process refreshes
	Rejected    uint64 // loaded values that were not stored, since something newer happened to the key
	LostLeases  uint64 // leases that a renewal or the commit found gone: expired, evicted, or ended by an invalidation
	Undecodable uint64 // stored values that could not be read as a T
	RedisErrors uint64 // failures of Redis, one for each round trip
	Trips       uint64 // round trips that read
	TripKeys    uint64 // keys that they carried

	// ChangeErrors counts keys whose Set, Invalidate or Expire returned ErrRedis, also when Redis was not asked since its
	// breaker was open: older values may be served until their TTL.
	ChangeErrors uint64

	Flights   int64 // gauge: loads and waits in the air
	Loading   int64 // gauge: loaders that run
	OpenNodes int64 // gauge: nodes whose breaker is open and that were needed within the last minute
}

// counters are the Stats as they grow.
type counters struct {
	local                                 striped
	hits, stale, absent, misses, joined   atomic.Uint64
	waits, wakes, polls                   atomic.Uint64
	loads, loadErrors, refreshes, skipped atomic.Uint64
	rejected, undecodable, redisErrors    atomic.Uint64
	lostLeases, changeErrors              atomic.Uint64
	ruledOut, guardErrors                 atomic.Uint64
	flights, loading                      atomic.Int64
}

// striped is a counter that many goroutines add to at once: each to a cell by the place of its stack, so that cores do not
// wait for each other's.
type striped [16]struct {
	atomic.Uint64
	_ [56]byte // of the cell's cache line
}

func (s *striped) add() {
	var here byte
	s[uint64(uintptr(unsafe.Pointer(&here)))>>11*0x9e3779b97f4a7c15>>60].Add(1)
}

func (s *striped) load() (n uint64) {
	for i := range s {
		n += s[i].Load()
	}
	return n
}

// Stats returns the counters of the cache, shared by its views.
func (c *Cache[T]) Stats() Stats { return c.view.counted() }

func (c *core) counted() Stats {
	s := &c.stats
	return Stats{
		Hits: s.hits.Load(), Stale: s.stale.Load(), Local: s.local.load(), Absent: s.absent.Load(), Misses: s.misses.Load(), Joined: s.joined.Load(),
		Waits: s.waits.Load(), Wakes: s.wakes.Load(), Polls: s.polls.Load(),
		RuledOut: s.ruledOut.Load(), GuardErrors: s.guardErrors.Load(),
		Loads: s.loads.Load(), LoadErrors: s.loadErrors.Load(), Refreshes: s.refreshes.Load(), Skipped: s.skipped.Load(),
		Rejected: s.rejected.Load(), LostLeases: s.lostLeases.Load(),
		Undecodable: s.undecodable.Load(), RedisErrors: s.redisErrors.Load(), ChangeErrors: s.changeErrors.Load(),
		Trips: c.nodes.trips.Load(), TripKeys: c.nodes.tripKeys.Load(),
		Flights: s.flights.Load(), Loading: s.loading.Load(), OpenNodes: c.nodes.open(),
	}
}
