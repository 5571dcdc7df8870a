package stockade

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A sample of a server's clock counts for a minute: two quartz clocks drift by a few ms in that time.
	clockSampleAge = time.Minute
	clockDrift     = 10 * time.Millisecond
)

// clock reads the clock of a Redis server without asking it: from the time that a reply carried, and the monotonic
// time since. It never looks at this machine's wall clock. Safe for concurrent use.
type clock struct {
	start  time.Time    // when local time is zero; set at creation
	offset atomic.Int64 // of the server's clock to local time, µs; zero while unknown

	mu    sync.Mutex
	trip  time.Duration // guarded by mu: how long the reply took that offset comes from
	ahead time.Duration // guarded by mu: of the server's clock, this one may be
	taken time.Time     // guarded by mu: when it came
}

func newClock() *clock { return &clock{start: time.Now()} }

// now returns the server's time in µs. It is unknown until a reply carried it.
func (c *clock) now() (us int64, known bool) {
	offset := c.offset.Load()
	return offset + time.Since(c.start).Microseconds(), offset != 0
}

// after returns a server's time, in µs, that has passed for certain at d from now. It is zero while the clock is
// unknown, so that a step that may not run late answers with its own clock instead.
func (c *clock) after(d time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, known := c.now()
	if !known {
		return 0
	}
	return now + (d - c.ahead).Microseconds()
}

// old reports whether the clock needs a new sample.
func (c *clock) old() bool {
	if c.offset.Load() == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.taken) > clockSampleAge/2
}

// sample takes a server's time that a reply carried. Of the last minute the one with the shortest trip counts, for it
// can be off by no more than that trip; one that it cannot agree with shows that the server's clock has been set, or
// that another server answers.
func (c *clock) sample(sent time.Time, server int64) {
	received := time.Now()
	trip := received.Sub(sent)
	offset := server - sent.Add(trip/2).Sub(c.start).Microseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	apart := time.Duration(offset-c.offset.Load()) * time.Microsecond
	agrees := apart.Abs() <= (trip+c.trip)/2+clockDrift
	if c.taken.IsZero() || trip <= c.trip || !agrees || received.Sub(c.taken) > clockSampleAge {
		c.offset.Store(offset)
		c.trip, c.ahead, c.taken = trip, trip/2, received
	}
}

// correct takes a server's time unseen, after the server has found a request too late: the clock was wrong.
func (c *clock) correct(server int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset.Store(server - time.Since(c.start).Microseconds())
	c.trip, c.ahead, c.taken = time.Second, 0, time.Now() // the next sample is better
}
