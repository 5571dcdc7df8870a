package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	quorum "github.com/go-redsync/redsync/v4/redis"
)

// vote is the answer of one server to one question. redsync, which counts it, takes it for a pool of connections to
// that server: it waits there for a vote that was asked for already. So redsync sends nothing, and what it would cancel,
// repeat or leave behind does not concern the servers.
type vote struct {
	node     *node
	expired  context.Context // ends when the answer does not count any more
	answered chan struct{}   // closed when the server has answered or was asked in vain, however late
	yes      bool            // set before answered is closed
	err      error           // set before answered is closed
}

// wait returns the answer, or why there is none.
func (v *vote) wait(ctx context.Context) (bool, error) {
	select {
	case <-v.answered:
		return v.yes, v.err
	case <-v.expired.Done():
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	select {
	case <-v.answered: // at the last moment; the end of the call ends its context, too
		return v.yes, v.err
	default:
		return false, context.Cause(v.expired)
	}
}

// votes are those of all servers on one question.
type votes []*vote

// counted returns the redsync mutex whose next method counts the votes. It returns as soon as a majority is for or
// against it, and not after ctx.
func (vs votes) counted(key, token string, ttl time.Duration) *redsync.Mutex {
	pools := make([]quorum.Pool, len(vs))
	for i, v := range vs {
		pools[i] = pool{v}
	}
	return redsync.New(pools...).NewMutex(key,
		redsync.WithExpiry(ttl),
		redsync.WithGenValueFunc(func() (string, error) { return token, nil }),
		redsync.WithValue(token),
		redsync.WithTries(1),
		redsync.WithFailFast(true),
		redsync.WithTimeoutFactor(1), // the votes have budgets of their own
	)
}

// against returns how many servers have said no so far, and the errors of those that have not answered in time.
func (vs votes) against() (no int, failures []error) {
	for _, v := range vs {
		var err error
		select {
		case <-v.answered:
			err = v.err
			if err == nil && !v.yes {
				no++
			}
		default:
			err = context.Cause(v.expired)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("node %s: %w", v.node.addr, err))
		}
	}
	return no, failures
}

// majority is how many of n servers decide.
func majority(n int) int { return n/2 + 1 }

// pool shows a vote to redsync.
type pool struct{ vote *vote }

func (p pool) Get(ctx context.Context) (quorum.Conn, error) { return conn{p.vote, ctx}, nil }

// conn shows a vote to one run of redsync.
type conn struct {
	vote *vote
	ctx  context.Context
}

// SetNX is redsync's question for a lock.
func (c conn) SetNX(string, string, time.Duration) (bool, error) { return c.vote.wait(c.ctx) }

// Eval is redsync's question for a renewal or a release, and its release of a lock that it did not get.
func (c conn) Eval(*quorum.Script, ...any) (any, error) {
	yes, err := c.vote.wait(c.ctx)
	if yes {
		return int64(1), err
	}
	return int64(0), err
}

func (c conn) Close() error { return nil }

// The rest of a connection is for methods of redsync that are not called.

var errNotAsked = errors.New("redlock: redsync asks what it was not expected to ask")

func (c conn) Get(string) (string, error)         { return "", errNotAsked }
func (c conn) Set(string, string) (bool, error)   { return false, errNotAsked }
func (c conn) ScriptLoad(*quorum.Script) error    { return errNotAsked }
func (c conn) PTTL(string) (time.Duration, error) { return 0, errNotAsked }
