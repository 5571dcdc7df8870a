package redistest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestClusterFailsOver(t *testing.T) {
	start := time.Now()
	c := Cluster(t)
	t.Logf("up after %v", time.Since(start))
	rdb := c.Client(t)
	for i := range 100 {
		set(t, rdb, fmt.Sprint(i), "v")
	}
	if n, err := rdb.DBSize(t.Context()).Result(); n != 100 || err != nil {
		t.Errorf("DBSIZE = %d, %v, want 100 in all", n, err)
	}
	master, replica := c.Master(t, "1"), c.Replica(t, "1")
	if v, err := master.Client(t).Get(t.Context(), "1").Result(); v != "v" || err != nil {
		t.Errorf("GET from the master: %q, %v", v, err)
	}
	master.Kill()
	start = time.Now()
	Eventually(t, 15*time.Second, "the replica has become the master", func() bool { return c.Master(t, "1") == replica })
	t.Logf("failed over after %v", time.Since(start))
	rdb.ReloadState(t.Context())
	Eventually(t, 10*time.Second, "the client finds the master", func() bool {
		rdb.ReloadState(t.Context())
		return rdb.Get(t.Context(), "1").Val() == "v"
	})
	master.Restart(t)
	Eventually(t, 15*time.Second, "the old master has become the replica", func() bool { return c.Replica(t, "1") == master })
}

func TestClusterMasterFrozen(t *testing.T) {
	c := Cluster(t)
	master, replica := c.Master(t, "k"), c.Replica(t, "k")
	master.Freeze(t)
	Eventually(t, 15*time.Second, "the replica has become the master", func() bool { return c.Master(t, "k") == replica })
	master.Thaw(t)
	Eventually(t, 15*time.Second, "the frozen master has become the replica", func() bool { return c.Replica(t, "k") == master })
	set(t, c.Client(t), "k", "v")
}

func TestClusterBehindAProxy(t *testing.T) {
	c := Cluster(t)
	p := NewProxy(t, c)
	rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Dialer = p.Dial })
	p.DropReplies(1, Named("incr"))
	if n, err := rdb.Incr(t.Context(), "n").Result(); n != 2 || err != nil {
		t.Errorf("INCR = %d, %v, want 2: executed twice", n, err)
	}
}

func TestSentinelFailsOver(t *testing.T) {
	for replicas := 1; replicas <= 2; replicas++ {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			start := time.Now()
			s := Sentinel(t, replicas)
			t.Logf("up after %v", time.Since(start))
			rdb := s.Client(t)
			set(t, rdb, "k", "v")
			master := s.Master(t)
			if master != s.Nodes[0] {
				t.Errorf("master %s, want %s", master.Addr(), s.Nodes[0].Addr())
			}
			master.Kill()
			start = time.Now()
			Eventually(t, 30*time.Second, "another node is the master", func() bool { return s.Master(t) != master })
			t.Logf("failed over after %v", time.Since(start))
			Eventually(t, 10*time.Second, "the client writes to it", func() bool {
				return rdb.Set(t.Context(), "k", "w", 0).Err() == nil
			})
		})
	}
}
