package bus

import (
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A client of a cluster keeps a dead master in its table for a minute, unless it is told to look again.
func TestClusterNodeOfTheSubscriptionDies(t *testing.T) {
	c := redistest.Cluster(t)
	rdb := c.Client(t)
	b := newBus(t, rdb)
	w := waiters(t, b, "k")[0]
	master := c.Master(t, channel)
	master.Kill()
	redistest.Eventually(t, time.Second, "the bus is not live", func() bool { return !b.Live() })
	start := time.Now()
	select {
	case <-w.C:
	case <-time.After(30 * time.Second):
		t.Fatal("the bus did not come up again")
	}
	t.Logf("live again after %v", time.Since(start))
	for _, node := range c.Nodes {
		if node == master {
			continue
		}
		publish(t, node.Client(t), "wk") // crosses the nodes
		wakes(t, w)
	}
}
