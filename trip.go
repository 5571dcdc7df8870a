package stockade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/script"
)

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
	until  time.Time     // when it is given up
	own    flusher       // of a trip that its first caller makes
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

func (t *trip) names() []any { return t.args[1:] }

func (t *trip) land(err error) {
	t.err = err
	close(t.done)
}

// A trip is the context of its own call: it ends when the trip is given up, and costs no timer.

// Deadline says when the trip is given up: it is what go-redis obeys on the wire, with ContextTimeoutEnabled.
func (t *trip) Deadline() (time.Time, bool) { return t.until, true }

// Done is what go-redis watches while it waits for a connection.
func (t *trip) Done() <-chan struct{} { return t.done }

// Err is not nil once the trip has landed, or nobody waits for it any more.
func (t *trip) Err() error {
	select {
	case <-t.done:
		return context.Canceled
	default:
		return nil
	}
}

// Value has nothing: the call serves many.
func (t *trip) Value(any) any { return nil }

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
