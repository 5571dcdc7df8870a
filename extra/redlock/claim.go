package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/script"
)

// claim is one attempt to lock a name, and the lock that came of it: a token of its own and what the servers have of
// it. The next attempt has another token, so that nothing that is still on its way touches it. Safe for concurrent use.
type claim struct {
	locker *Locker
	name   string
	keys   keys
	token  string

	mu    sync.Mutex
	over  bool   // guarded by mu: nobody holds or wants the lock
	trace []mark // guarded by mu: by the number of the server
}

// mark says whether a server may have a claim's token.
type mark uint8

const (
	asked mark = iota // a request is under way, or none was sent
	clean             // it does not
	taken             // it does, or did not say
)

func (l *Locker) newClaim(name string) *claim {
	token := make([]byte, script.TokenLen)
	_, _ = rand.Read(token) // never fails
	return &claim{locker: l, name: name, keys: keysOf(l.opts.Prefix, name), token: string(token), trace: make([]mark, len(l.nodes))}
}

// tokenOf is the token for one server: the last byte is its number. So a server that has two names votes once: under
// its second name it finds the lock taken.
func (c *claim) tokenOf(n *node) string {
	return c.token[:script.TokenLen-1] + string([]byte{byte(n.index)})
}

// ask asks all servers at once.
func (c *claim) ask(ctx context.Context, op string, budget time.Duration, call func(context.Context, *node) (bool, error)) votes {
	var vs votes
	for _, n := range c.locker.nodes {
		vs = append(vs, n.ask(ctx, op, budget, func(ctx context.Context) (bool, error) { return call(ctx, n) }))
	}
	return vs
}

// validity is how long a lock counts as held after the requests that took or renewed it were sent: until before it can
// expire on a server, whose clock may run faster than ours (1 %) and counts in ms, and late enough for a timer that
// fires late (2 ms).
func validity(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// take asks all servers for the lock and returns until when it is ours. What was taken in vain is given back at once.
func (c *claim) take(ctx context.Context) (until time.Time, err error) {
	if ctx.Err() != nil {
		return time.Time{}, endedError(ctx)
	}
	opts := c.locker.opts
	sent := time.Now()
	notAfter := sent.Add(opts.RedisTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(notAfter) {
		notAfter = deadline
	}
	vs := c.ask(ctx, "take", opts.RedisTimeout, func(ctx context.Context, n *node) (bool, error) {
		yes, err := n.take(ctx, c.keys, c.tokenOf(n), opts.TTL, notAfter)
		c.answered(ctx, n, yes, err)
		return yes, err
	})
	lost := vs.counted(c.keys.lock, c.token, opts.TTL).TryLockContext(ctx)
	until = sent.Add(validity(opts.TTL))
	if lost == nil && ctx.Err() == nil && time.Now().Before(until) {
		return until, nil
	}
	c.giveUp(ctx)
	no, failures := vs.against()
	switch {
	case ctx.Err() != nil:
		return time.Time{}, endedError(ctx)
	case lost == nil:
		return time.Time{}, redisError(nil)
	case no > 0 && len(failures) < majority(len(vs)):
		return time.Time{}, stockade.ErrLocked
	case isRefused(failures, len(vs)):
		return time.Time{}, refusedError{redisError(failures)}
	default:
		return time.Time{}, redisError(failures)
	}
}

// answered is told what became of a request to take the lock, also when nobody waits for it any more: then it gives
// back what the request took.
func (c *claim) answered(ctx context.Context, n *node, yes bool, err error) {
	c.mu.Lock()
	over := c.over
	c.trace[n.index] = clean
	if yes || err != nil && !errors.Is(err, errTooLate) {
		c.trace[n.index] = taken
	}
	left := over && c.trace[n.index] == taken
	c.mu.Unlock()
	if left {
		_, _ = n.unlock(ctx, c.keys, c.tokenOf(n)) // or it expires
	}
}

// giveUp begins to release a lock that too few servers gave, where it may be. Where a request is still under way, the
// release follows it.
func (c *claim) giveUp(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for i, n := range c.locker.nodes {
		if c.trace[i] == taken {
			n.ask(ctx, "unlock", c.locker.opts.RedisTimeout, func(ctx context.Context) (bool, error) {
				return n.unlock(ctx, c.keys, c.tokenOf(n))
			})
		}
	}
}

// renew asks all servers to keep the lock for ttl from now on, and returns until when it is ours. The error Is
// ErrLockLost when no majority can have it any more.
func (c *claim) renew(ctx context.Context, ttl time.Duration) (until time.Time, err error) {
	sent := time.Now()
	vs := c.ask(ctx, "renew", c.locker.locks.Budget(ttl), func(ctx context.Context, n *node) (bool, error) {
		return n.renew(ctx, c.keys, c.tokenOf(n), ttl)
	})
	held, _ := vs.counted(c.keys.lock, c.token, ttl).ExtendContext(ctx)
	if held {
		return sent.Add(validity(ttl)), nil
	}
	no, failures := vs.against()
	switch {
	case no >= majority(len(vs)):
		return time.Time{}, stockade.ErrLockLost
	case ctx.Err() != nil:
		return time.Time{}, endedError(ctx)
	default:
		return time.Time{}, redisError(failures)
	}
}

// release asks all servers to forget the lock, also those that did not answer when it was taken. It returns nil when a
// majority had it, and ErrLockLost when no majority can have had it.
func (c *claim) release(ctx context.Context) error {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	vs := c.ask(ctx, "unlock", c.locker.opts.RedisTimeout, func(ctx context.Context, n *node) (bool, error) {
		return n.unlock(ctx, c.keys, c.tokenOf(n))
	})
	released, _ := vs.counted(c.keys.lock, c.token, c.locker.opts.TTL).UnlockContext(ctx)
	no, failures := vs.against()
	switch {
	case released:
		return nil
	case no >= majority(len(vs)):
		return stockade.ErrLockLost
	default:
		return redisError(failures)
	}
}
