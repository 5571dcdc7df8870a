package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redisd"
)

// DownAfter is how long a master may be silent before a sentinel takes it for dead.
const DownAfter = time.Second

const (
	masterName = "master"
	sentinels  = 3
)

// SentinelServers is a master with replicas, watched by three sentinels.
type SentinelServers struct {
	Nodes     []*RealServer // at first the master, then the replicas
	Sentinels []*RealServer
}

// Sentinel starts a master, its replicas and the sentinels, which know all of them. It takes a few seconds. Further
// arguments are for the master and the replicas.
func Sentinel(t testing.TB, replicas int, args ...string) *SentinelServers {
	t.Helper()
	needServers(t)
	s := &SentinelServers{Nodes: startAll(t, 1+replicas, append([]string{
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)...)}
	host, port, _ := net.SplitHostPort(s.Nodes[0].Addr())
	for _, replica := range s.Nodes[1:] {
		if err := replica.Client(t).ReplicaOf(t.Context(), host, port).Err(); err != nil {
			t.Fatalf("replicate: %v", err)
		}
	}
	master := s.Nodes[0].Client(t)
	Eventually(t, settleTimeout, "the replicas have caught up", func() bool {
		return strings.Count(master.Info(t.Context(), "replication").Val(), "state=online") == replicas
	})
	for range sentinels {
		s.Sentinels = append(s.Sentinels, newSentinel(t, host, port))
	}
	for _, sentinel := range s.Sentinels {
		rdb := redis.NewSentinelClient(sentinel.Options())
		defer func() { _ = rdb.Close() }()
		Eventually(t, settleTimeout, "a sentinel knows the others and the replicas", func() bool {
			state := rdb.Master(t.Context(), masterName).Val()
			return state["num-slaves"] == fmt.Sprint(replicas) && state["num-other-sentinels"] == fmt.Sprint(sentinels-1)
		})
	}
	return s
}

func newSentinel(t testing.TB, host, port string) *RealServer {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "sentinel.conf") // a sentinel writes what it learns into it
	lines := fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel down-after-milliseconds %[1]s %[4]d
sentinel failover-timeout %[1]s 5000
`, masterName, host, port, DownAfter.Milliseconds())
	if err := os.WriteFile(config, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	proc, err := redisd.Start(dir, redisd.FreePort(), config, "--sentinel")
	if err != nil {
		t.Fatal(err)
	}
	s := &RealServer{proc}
	t.Cleanup(func() { s.proc.Kill() })
	return s
}

// Options returns what a client needs to find the master.
func (s *SentinelServers) Options() *redis.FailoverOptions {
	opt := &redis.FailoverOptions{MasterName: masterName}
	for _, sentinel := range s.Sentinels {
		opt.SentinelAddrs = append(opt.SentinelAddrs, sentinel.Addr())
	}
	return opt
}

// Client returns a client that follows the master, closed when the test ends.
func (s *SentinelServers) Client(t testing.TB, change ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	opt := s.Options()
	for _, f := range change {
		f(opt)
	}
	rdb := redis.NewFailoverClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Master returns the node that the sentinels take for the master.
func (s *SentinelServers) Master(t testing.TB) *RealServer {
	t.Helper()
	for _, sentinel := range s.Sentinels {
		rdb := redis.NewSentinelClient(sentinel.Options())
		addr, err := rdb.GetMasterAddrByName(t.Context(), masterName).Result()
		_ = rdb.Close()
		if err != nil {
			continue
		}
		for _, node := range s.Nodes {
			if node.Addr() == net.JoinHostPort(addr[0], addr[1]) {
				return node
			}
		}
	}
	t.Fatal("no sentinel knows the master")
	return nil
}
