package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/script"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// maxCalls is how many calls to one server may be under way: so many goroutines a frozen server can hold, for as long
// as its client waits. Beyond it a vote that finds no place in time is not counted; a release waits for up to TTL.
const maxCalls = 64

// node is one of the servers. Safe for concurrent use.
type node struct {
	locker *Locker
	index  int
	addr   string
	rdb    redis.UniversalClient
	clock  clock
	calls  chan struct{} // a place for each call under way

	failing atomic.Bool // the last answer was none
	told    sync.Map    // kinds of refusals that the Observer knows
}

func newNode(l *Locker, index int, rdb redis.UniversalClient) *node {
	return &node{locker: l, index: index, addr: addrOf(rdb, index), rdb: rdb, clock: clock{start: time.Now()}, calls: make(chan struct{}, maxCalls)}
}

// ask begins to ask the server for its vote and returns at once. The call has the values of ctx; it counts for no
// longer than budget, whatever its client does: go-redis does not watch a context while it waits for a reply.
func (n *node) ask(ctx context.Context, op string, budget time.Duration, call func(context.Context) (bool, error)) *vote {
	l := n.locker
	limited, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), budget, tasks.TimeoutError{After: budget})
	v := &vote{node: n, expired: limited, answered: make(chan struct{})}
	early := context.AfterFunc(limited, func() { l.work.Run(func() { n.note(op, context.Cause(limited)) }) })
	begun := l.work.Run(func() {
		defer cancel()
		defer close(v.answered)
		patient := limited
		if op == "unlock" { // though nobody waits: what is not released bars others until it expires
			var leave context.CancelFunc
			patient, leave = context.WithTimeout(context.WithoutCancel(ctx), l.opts.TTL)
			defer leave()
		}
		select {
		case n.calls <- struct{}{}:
		case <-patient.Done():
			v.err = context.Cause(patient)
			return
		}
		defer func() { <-n.calls }()
		v.yes, v.err = call(limited)
		if early() {
			n.note(op, v.err)
		}
	})
	if !begun {
		early()
		cancel()
		v.err = stockade.ErrClosed
		close(v.answered)
	}
	return v
}

// tries is how often a step is sent while connections break: a pool may have several that died while nobody used them.
// All steps may be repeated.
const tries = 3

// take asks the server for a lock, which it no longer gives at a time when nobody waits for it.
func (n *node) take(ctx context.Context, k keys, token string, ttl time.Duration, notAfter time.Time) (bool, error) {
	for corrected := false; ; corrected = true {
		var sent time.Time
		t, err := repeated(ctx, func() (script.Taken, error) {
			sent = time.Now()
			return script.Take(ctx, n.rdb, k.lock, k.memory, token, ttl, n.clock.at(notAfter), false)
		})
		if err != nil {
			return false, explained(err)
		}
		late := !time.Now().Before(notAfter)
		if !late { // a slow reply says little about the server's clock
			n.clock.sample(sent, t.Time)
		}
		switch {
		case t.Status == script.Granted:
			return true, nil
		case t.Status == script.Busy:
			return false, nil
		case corrected || late:
			return false, errTooLate
		}
		// The server's clock was unknown or wrong, and is right now.
	}
}

// repeated sends a step again while connections break.
func repeated[R any](ctx context.Context, send func() (R, error)) (r R, err error) {
	for try := 1; ; try++ {
		if r, err = send(); try == tries || ctx.Err() != nil || !isBroken(err) {
			return r, err
		}
	}
}

// renew makes a lock that the server still has last for ttl from now.
func (n *node) renew(ctx context.Context, k keys, token string, ttl time.Duration) (bool, error) {
	r, err := repeated(ctx, func() (script.Result, error) { return script.Do(ctx, n.rdb, script.Renew(k.lock, token, ttl)) })
	return r.Status == script.Held, explained(err)
}

// unlock releases a lock. It tries again when no answer comes, also when nobody waits for the vote any more: so each try
// has a time of its own.
func (n *node) unlock(ctx context.Context, k keys, token string) (bool, error) {
	timeout := n.locker.opts.RedisTimeout
	var unanswered error
	for try := 1; ; try++ {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		r, err := script.Unlock(limited, n.rdb, k.lock, k.memory, token, n.locker.opts.Prefix+":unlock")
		cancel()
		if err == nil && r.Status != script.Held && unanswered != nil {
			// The server remembers the last releases of a name only: an earlier try may be the one that released it.
			return false, unanswered
		}
		if err == nil || try == tries || isRefusal(err) {
			return r.Status == script.Held, explained(err) // or the lock expires
		}
		unanswered = err
		if try > 1 || !isBroken(err) {
			time.Sleep(timeout / 2)
		}
	}
}

// note tells the Observer of a failure, and of its end.
func (n *node) note(op string, err error) {
	tell := n.locker.opts.Observer.Redis
	switch {
	case errors.Is(err, stockade.ErrClosed) || errors.Is(err, errTooLate):
	case err == nil:
		if n.failing.Swap(false) {
			tell(stockade.RedisEvent{Op: op, Node: n.addr})
		}
	case isRefusal(err):
		kind, _, _ := strings.Cut(err.Error(), " ")
		if _, told := n.told.LoadOrStore(kind, true); !told {
			tell(stockade.RedisEvent{Op: op, Node: n.addr, Err: err, Misconfigured: true})
		}
	default:
		n.failing.Store(true)
		tell(stockade.RedisEvent{Op: op, Node: n.addr, Err: err})
	}
}

// explained says what an answer means that a user did not ask for.
func explained(err error) error {
	if _, moved := redis.IsMovedError(err); moved {
		return fmt.Errorf("the server is a node of a cluster, which Redlock cannot use: %w", err)
	}
	return err
}

// clock reads a server's clock from the time that its last reply carried and the monotonic time since, never from this
// machine's wall clock. The reading may be ahead by as long as a request takes that
// came back in time. Safe for concurrent use.
type clock struct {
	start  time.Time    // when local time is zero; set at creation
	offset atomic.Int64 // of the server's clock to local time, µs; zero while unknown
}

// at returns what the server's clock says at a time, in µs. It is zero while that is unknown, so that a step that may
// not run late answers with the clock instead.
func (c *clock) at(t time.Time) int64 {
	offset := c.offset.Load()
	if offset == 0 {
		return 0
	}
	return offset + t.Sub(c.start).Microseconds()
}

// sample takes the time that the reply to a request carried.
func (c *clock) sample(sent time.Time, server int64) {
	c.offset.Store(server - sent.Sub(c.start).Microseconds())
}
