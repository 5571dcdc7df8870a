package stockade

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/script"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// nodes knows the servers behind a client, one node each. Safe for concurrent use.
type nodes struct {
	rdb       redis.UniversalClient
	timeout   time.Duration
	calls     *tasks.Group
	tell      func(RedisEvent)
	recovered func() // a node answers again
	cached    bool   // the client has a cache of its own, which reads must pass around
	obeys     bool   // the client ends a call at the deadline of its context

	ctx    context.Context // of the calls that nobody's own context ends: ends with close
	cancel context.CancelFunc

	single *node       // of a client with one server
	known  atomic.Bool // a cluster's slots have been learnt, so that asking for a key's master needs no I/O

	trips    atomic.Uint64
	tripKeys atomic.Uint64

	mu       sync.Mutex
	byClient map[*redis.Client]*node // guarded by mu: of a cluster or ring
	closed   bool                    // guarded by mu
	told     map[string]bool         // guarded by mu: misconfigurations
}

// newNodes has its functions called while no mutex is held.
func newNodes(rdb redis.UniversalClient, timeout time.Duration, calls *tasks.Group, tell func(RedisEvent), recovered func()) *nodes {
	ns := &nodes{
		rdb: rdb, timeout: timeout, calls: calls, tell: tell, recovered: recovered,
		byClient: map[*redis.Client]*node{}, told: map[string]bool{},
	}
	ns.ctx, ns.cancel = context.WithCancel(context.Background())
	// The node of a cluster or ring stands for the time before it is known which node has a key.
	ns.single = ns.newNode(rdb, "")
	switch client := rdb.(type) {
	case *redis.Client:
		ns.cached = client.Options().ClientSideCacheConfig != nil || client.Options().ClientSideCache != nil
		ns.obeys = client.Options().ContextTimeoutEnabled
		ns.single.fly = ns.single.flyMulti
	case *redis.ClusterClient:
		ns.obeys = client.Options().ContextTimeoutEnabled
	case *redis.Ring:
		ns.obeys = client.Options().ContextTimeoutEnabled
	}
	if ns.single.fly == nil { // an AutoPipeliner may stand before a cluster
		ns.single.fly = ns.single.flyPipelined
	}
	return ns
}

func (ns *nodes) newNode(rdb redis.UniversalClient, addr string) *node {
	n := &node{nodes: ns, clock: newClock(), addr: addr, rdb: rdb, out: map[*flusher]struct{}{}, places: map[string]place{}, gone: make(chan struct{})}
	n.work.L = &n.mu
	n.breaker = breaker{window: ns.timeout, start: time.Now(), probe: n.ping, changed: n.changed}
	return n
}

// of returns the node that holds a key: its master, whatever the client's routing of reads is.
func (ns *nodes) of(ctx context.Context, name string) (*node, error) {
	switch rdb := ns.rdb.(type) {
	case *redis.ClusterClient:
		if ns.known.Load() {
			client, err := rdb.MasterForKey(ctx, name)
			if err == nil {
				return ns.at(client, false)
			}
		}
		if err := ns.single.pass(); err != nil {
			return nil, err
		}
		client, err := tasks.Within(ctx, ns.calls, ns.timeout, func(ctx context.Context) (*redis.Client, error) {
			return rdb.MasterForKey(ctx, name)
		})
		if ctx.Err() == nil {
			ns.single.note("cluster slots", err)
		}
		if err != nil {
			return nil, err
		}
		ns.known.Store(true)
		return ns.at(client, false)
	case *redis.Ring:
		client, err := rdb.GetShardClientForKey(name)
		if err != nil {
			return nil, err
		}
		return ns.at(client, true)
	}
	return ns.single, nil
}

func (ns *nodes) at(client *redis.Client, multi bool) (*node, error) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.byClient[client]
	if n == nil {
		if ns.closed {
			return nil, ErrClosed
		}
		n = ns.newNode(client, client.Options().Addr)
		n.fly = n.flyPipelined
		if multi {
			n.fly = n.flyMulti
		}
		ns.byClient[client] = n
	}
	return n, nil
}

// all returns every node.
func (ns *nodes) all() []*node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	list := []*node{ns.single}
	for _, n := range ns.byClient {
		list = append(list, n)
	}
	return list
}

// open counts the nodes that are missed. One that nobody has asked for within a minute may have left its cluster for good.
func (ns *nodes) open() (count int64) {
	since := time.Now().Add(-time.Minute)
	for _, n := range ns.all() {
		if n.missed(since) {
			count++
		}
	}
	return count
}

// close fails the reads that wait. Calls in flight are the tasks' to wait for.
func (ns *nodes) close() {
	ns.mu.Lock()
	ns.closed = true
	ns.mu.Unlock()
	for _, n := range ns.all() {
		n.turnAway(ErrClosed, true)
	}
	ns.cancel() // a client that waits for a reply does not see it, but does not ask again
}

// reload makes a cluster's client learn its slots anew: by itself it keeps a dead master for a minute.
func (ns *nodes) reload() {
	if cluster, ok := ns.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background()) // in the background, and seldom
	}
}

// note tells the breaker and the observer how a call ended.
func (n *node) note(op string, err error) {
	n.breaker.note(err)
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, ErrClosed) {
		return
	}
	event := RedisEvent{Op: op, Node: n.addr, Err: err, Open: n.isOpen.Load()}
	if isTransport(err) {
		n.clock.doubt()
		n.reload()
	} else if !isPassing(err) {
		event.Misconfigured = true
		kind, _, _ := strings.Cut(err.Error(), " ")
		n.nodes.mu.Lock()
		told := n.told[kind]
		n.told[kind] = true
		n.nodes.mu.Unlock()
		if told {
			return
		}
	}
	n.tell(event)
}

// changed follows the breaker.
func (n *node) changed(cause error) {
	if cause != nil {
		n.turnAway(errOpen{cause}, false)
		return
	}
	n.recovered()
	n.tell(RedisEvent{Op: "probe", Node: n.addr})
}

// ping asks for a sign of life. In a cluster another node may have taken over.
func (n *node) ping() {
	n.reload()
	n.calls.Run(func() {
		var err error
		sent := time.Now()
		if cluster, ok := n.rdb.(*redis.ClusterClient); ok {
			_, err = cluster.MasterForKey(n.ctx, "0")
		} else {
			ctx, cancel := context.WithDeadline(n.ctx, sent.Add(n.timeout))
			err = n.rdb.Ping(ctx).Err()
			cancel()
		}
		if time.Since(sent) < n.timeout { // one that comes later says that the node is too slow
			n.breaker.note(err)
		}
	})
}

// clocked is a reply that carries the server's time.
type clocked interface{ ServerTime() int64 }

// answers are those to many calls of one pipeline, in their order.
type answers[R clocked] struct {
	list []R
	errs []error
}

// ServerTime returns the time of any of them; zero when all were refused.
func (a answers[R]) ServerTime() int64 {
	for i := range a.list {
		if a.errs[i] == nil {
			return a.list[i].ServerTime()
		}
	}
	return 0
}

// firstTransport returns an error that says that the server did not answer.
func firstTransport(errs []error) error {
	for _, err := range errs {
		if err != nil && isTransport(err) {
			return err
		}
	}
	return nil
}

// stepMany runs a pipeline of count calls on a node, as step runs one. The errors are the calls', in their order.
func stepMany[R clocked](ctx context.Context, n *node, op string, count int, run func(context.Context, script.Pipeliner) ([]R, []error)) ([]R, []error) {
	a, err := step(ctx, n, op, func(ctx context.Context, r script.Runner) (answers[R], error) {
		list, errs := run(ctx, r.(script.Pipeliner))
		return answers[R]{list, errs}, firstTransport(errs)
	})
	if a.errs == nil {
		return make([]R, count), slices.Repeat([]error{err}, count)
	}
	if err == nil {
		if i := slices.IndexFunc(a.errs, func(err error) bool { return err != nil }); i >= 0 {
			n.note(op, a.errs[i]) // a refusal: of the round trip, so that one is enough
		}
	}
	return a.list, a.errs
}

// unbroken makes a call again while the connections that it meets have failed: all that were idle may have been closed
// at once. A client without retries does not do so by itself, and one with TLS notices a closed connection only when it
// writes. A connection that cannot be made is tried twice.
func (n *node) unbroken(until time.Time, call func() error) error {
	const most = 32 // a server may also close whatever it is sent
	for try := 1; ; try++ {
		err := call()
		if !isBroken(err) || try == most || isDial(err) && try == 2 || !time.Now().Before(until) {
			return err
		}
		n.clock.doubt()
	}
}

// step runs one atomic step on a node, within the time that one step has. It may be executed twice.
func step[R clocked](ctx context.Context, n *node, op string, run func(context.Context, script.Runner) (R, error)) (R, error) {
	return stepOnce(ctx, n, op, func(ctx context.Context, r script.Runner) (result R, err error) {
		until, _ := ctx.Deadline() // within has set one
		err = n.unbroken(until, func() error { result, err = run(ctx, r); return err })
		return result, err
	})
}

// stepOnce is step for what may not be repeated.
func stepOnce[R clocked](ctx context.Context, n *node, op string, run func(context.Context, script.Runner) (R, error)) (R, error) {
	if err := n.pass(); err != nil {
		var none R
		return none, err
	}
	r, err := tasks.Within(ctx, n.calls, n.timeout, func(ctx context.Context) (R, error) {
		sent := time.Now()
		// Through the client that knows all nodes: it follows a key that moves.
		r, err := run(ctx, n.nodes.rdb)
		if err == nil && r.ServerTime() != 0 { // of many calls all may have been refused
			n.clock.sample(sent, r.ServerTime())
		}
		return r, err
	})
	if ctx.Err() == nil {
		n.note(op, err)
	}
	return r, err
}
