package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockade-cache/stockade"
)

// Locker is the collector of one Locker. It is safe for concurrent use.
type Locker struct {
	family
	waitTime, heldTime                               prometheus.Histogram
	waits, redisErrors                               *prometheus.CounterVec
	taken, lost, unreleased, wakes, polls, misconfig prometheus.Counter
	holding                                          prometheus.Gauge
}

var _ prometheus.Collector = (*Locker)(nil)

// NewLocker returns a collector that is not registered yet. The error names the field and the value that it refuses.
func NewLocker(opts Options) (*Locker, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	l := &Locker{family: family{constant: prometheus.Labels{"locker": opts.Name}, buckets: opts.Buckets}}
	l.waitTime = l.histogram("stockade_lock_wait_seconds", "How long waits for locks that others held took.")
	l.waits = l.counters("stockade_lock_waits_ended_total", "Waits for locks that others held.", "outcome")
	l.heldTime = l.histogram("stockade_lock_held_seconds", "How long locks were held until they were released or lost.")
	l.holding = l.gauge("stockade_locks_held", "Locks that are held.")
	l.taken = l.counter("stockade_locks_taken_total", "Locks that were taken.")
	l.lost = l.counter("stockade_locks_lost_total", "Locks that were lost before they were released.")
	l.unreleased = l.counter("stockade_lock_release_errors_total", "Releases that Redis did not answer: others wait until the lock expires.")
	l.wakes = l.counter("stockade_lock_wakes_total", "Messages that woke a wait for a lock.")
	l.polls = l.counter("stockade_lock_polls_total", "Questions of waits for a lock that no message had woken.")
	l.redisErrors = l.counters("stockade_lock_redis_errors_total", "Failures of Redis by what was asked.", "op")
	l.misconfig = l.counter("stockade_lock_misconfigurations_total", "Kinds of refusal that Redis will keep giving; each is counted once.")
	return l, nil
}

// Observer returns the functions for [stockade.LockOptions.Observer].
func (l *Locker) Observer() stockade.Observer {
	return stockade.Observer{
		Lock: func(e stockade.LockEvent) {
			switch e.Kind {
			case stockade.LockTaken:
				l.taken.Inc()
				l.holding.Inc()
				return
			case stockade.LockLost:
				l.lost.Inc()
			case stockade.LockReleased:
				if e.Err != nil {
					l.unreleased.Inc()
				}
			}
			l.holding.Dec()
			l.heldTime.Observe(e.Held.Seconds())
		},
		Wait: func(e stockade.WaitEvent) {
			l.waitTime.Observe(e.Took.Seconds())
			l.waits.WithLabelValues(lockWaitOutcome(e.Err)).Inc()
			l.wakes.Add(float64(e.Wakes))
			l.polls.Add(float64(e.Polls))
		},
		Redis: func(e stockade.RedisEvent) {
			if e.Err == nil {
				return
			}
			l.redisErrors.WithLabelValues(e.Op).Inc()
			if e.Misconfigured {
				l.misconfig.Inc()
			}
		},
	}
}
