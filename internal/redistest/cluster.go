package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redisd"
)

// NodeTimeout is how long a node of a cluster may be silent before the others take it for dead.
const NodeTimeout = 2 * time.Second

// settleTimeout is how long servers may take to know each other.
const settleTimeout = 10 * time.Second

const masters = 3

// ClusterServers is a cluster of three masters with a replica each.
type ClusterServers struct {
	Nodes []*RealServer // at first the masters, then in their order the replicas
}

// Cluster starts a cluster that accepts writes and whose replicas have caught up. It takes a few seconds.
func Cluster(t testing.TB) *ClusterServers {
	t.Helper()
	needServers(t)
	c := &ClusterServers{Nodes: startAll(t, 2*masters,
		"--cluster-enabled", "yes", "--cluster-node-timeout", fmt.Sprint(NodeTimeout.Milliseconds()),
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")}
	if err := c.join(t.Context()); err != nil {
		t.Fatalf("cluster: %v", err)
	}
	return c
}

// startAll starts servers side by side.
func startAll(t testing.TB, n int, args ...string) []*RealServer {
	t.Helper()
	nodes := make([]*RealServer, n)
	errs := make([]error, n)
	dirs := make([]string, n)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			proc, err := redisd.StartVolatile(dirs[i], args...)
			nodes[i], errs[i] = &RealServer{proc}, err
		})
	}
	wg.Wait()
	for i, node := range nodes {
		if errs[i] != nil {
			t.Errorf("start: %v", errs[i])
			continue
		}
		t.Cleanup(func() { node.proc.Kill() })
	}
	if t.Failed() {
		t.FailNow()
	}
	return nodes
}

// join makes a cluster of the nodes.
func (c *ClusterServers) join(ctx context.Context) error {
	clients := make([]*redis.Client, len(c.Nodes))
	ids := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		clients[i] = redis.NewClient(node.Options())
		defer func() { _ = clients[i].Close() }()
		// Epochs of their own spare the masters a vote about who keeps his.
		if err := clients[i].Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		id, err := clients[i].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		ids[i] = id
	}
	const slots = 16384
	for i := range masters {
		if err := clients[i].ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr())
		if err := clients[0].ClusterMeet(ctx, host, port).Err(); err != nil {
			return err
		}
	}
	if !c.all(ctx, clients, func(i int) bool {
		return strings.Contains(clients[i].ClusterInfo(ctx).Val(), fmt.Sprintf("cluster_known_nodes:%d", len(clients)))
	}) {
		return fmt.Errorf("the nodes do not find each other")
	}
	for i := masters; i < len(clients); i++ {
		var err error
		poll(settleTimeout, func() bool { // a node may know another's address before its id
			err = clients[i].ClusterReplicate(ctx, ids[i-masters]).Err()
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	if !c.all(ctx, clients, func(i int) bool {
		info := clients[i].Info(ctx, "replication").Val()
		caughtUp := strings.Contains(info, "state=online") || strings.Contains(info, "master_link_status:up")
		//lint:ignore SA1019 it is the shorter answer: a range, its master, its replicas
		slots, err := clients[i].ClusterSlots(ctx).Result()
		known := err == nil && len(slots) == masters && !slices.ContainsFunc(slots, func(s redis.ClusterSlot) bool { return len(s.Nodes) != 2 })
		return caughtUp && known && strings.Contains(clients[i].ClusterInfo(ctx).Val(), "cluster_state:ok")
	}) {
		return fmt.Errorf("the cluster does not come up")
	}
	return nil
}

// all polls until something holds for every node.
func (c *ClusterServers) all(ctx context.Context, clients []*redis.Client, holds func(i int) bool) bool {
	return poll(settleTimeout, func() bool {
		for i := range clients {
			if ctx.Err() != nil || !holds(i) {
				return false
			}
		}
		return true
	})
}

// Options returns what a client needs to reach the cluster.
func (c *ClusterServers) Options() *redis.ClusterOptions {
	opt := &redis.ClusterOptions{}
	for _, node := range c.Nodes {
		opt.Addrs = append(opt.Addrs, node.Addr())
	}
	return opt
}

// Client returns a client of the cluster, closed when the test ends.
func (c *ClusterServers) Client(t testing.TB, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opt := c.Options()
	for _, f := range change {
		f(opt)
	}
	rdb := redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Dial connects to the node at an address: a [Proxy] may stand before the cluster, as ClusterOptions.Dialer.
func (c *ClusterServers) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// Master returns the node that is the master of a key's slot, as the nodes that answer see it.
func (c *ClusterServers) Master(t testing.TB, key string) *RealServer {
	t.Helper()
	master, _ := c.owners(t, key)
	return master
}

// Replica returns the replica of a key's slot.
func (c *ClusterServers) Replica(t testing.TB, key string) *RealServer {
	t.Helper()
	_, replica := c.owners(t, key)
	return replica
}

func (c *ClusterServers) owners(t testing.TB, key string) (master, replica *RealServer) {
	t.Helper()
	for _, node := range c.Nodes {
		rdb := redis.NewClient(&redis.Options{Addr: node.Addr(), DialTimeout: time.Second, ReadTimeout: time.Second, MaxRetries: -1})
		slot, err := rdb.ClusterKeySlot(t.Context(), key).Result()
		//lint:ignore SA1019 it names the master first, which CLUSTER SHARDS leaves to find out
		ranges, err2 := rdb.ClusterSlots(t.Context()).Result()
		_ = rdb.Close()
		if err != nil || err2 != nil {
			continue
		}
		for _, r := range ranges {
			if int(slot) < r.Start || int(slot) > r.End {
				continue
			}
			master = c.at(r.Nodes[0].Addr)
			if len(r.Nodes) > 1 {
				replica = c.at(r.Nodes[1].Addr)
			}
			return master, replica
		}
	}
	t.Fatalf("no node knows who has key %s", key)
	return nil, nil
}

func (c *ClusterServers) at(addr string) *RealServer {
	for _, node := range c.Nodes {
		if node.Addr() == addr {
			return node
		}
	}
	return nil
}
