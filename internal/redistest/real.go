package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redisd"
)

// RealServer is a redis-server child process that keeps nothing on disk.
type RealServer struct {
	proc *redisd.Process
}

// shared is the server of [Real].
var shared sharedServer

type sharedServer struct {
	lent   sync.Mutex  // held by the test that uses the server
	server *RealServer // guarded by lent
}

// Real lends the test binary's one server, empty, to one test at a time, until the test ends. The package's TestMain
// is [Main]. A test that freezes, kills or configures its server takes [NewReal].
func Real(t testing.TB) *RealServer {
	t.Helper()
	needServer(t)
	shared.lent.Lock()
	t.Cleanup(shared.lent.Unlock)
	if shared.server == nil {
		dir, err := os.MkdirTemp("", "redistest")
		if err != nil {
			t.Fatal(err)
		}
		proc, err := redisd.StartVolatile(dir)
		if err != nil {
			_ = os.RemoveAll(dir)
			t.Fatal(err)
		}
		shared.server = &RealServer{proc}
	}
	s := shared.server
	rdb := redis.NewClient(s.Options())
	defer func() { _ = rdb.Close() }()
	for _, reset := range []redis.Cmder{rdb.FlushAll(t.Context()), rdb.ScriptFlush(t.Context())} {
		if err := reset.Err(); err != nil {
			t.Fatalf("empty the shared server: %v", err)
		}
	}
	return s
}

func (s *sharedServer) stop() {
	s.lent.Lock()
	defer s.lent.Unlock()
	if s.server != nil {
		s.server.proc.Kill()
		_ = os.RemoveAll(s.server.proc.Dir)
		s.server = nil
	}
}

// NewReal starts a server of the test's own, with arguments such as "--maxmemory", "1mb".
func NewReal(t testing.TB, args ...string) *RealServer {
	t.Helper()
	needServer(t)
	proc, err := redisd.StartVolatile(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	s := &RealServer{proc}
	t.Cleanup(func() { s.proc.Kill() })
	return s
}

// Addr returns host and port.
func (s *RealServer) Addr() string { return s.proc.Addr() }

// Options returns the options of a client.
func (s *RealServer) Options() *redis.Options { return &redis.Options{Addr: s.Addr()} }

// Client returns a client with a pool of its own, closed when the test ends.
func (s *RealServer) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, s.Options(), change)
}

// Dial connects to the server, whatever the address says.
func (s *RealServer) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", s.Addr())
}

// Freeze stops the process: connections stay open, and nothing is answered. It may be frozen when the test ends.
func (s *RealServer) Freeze(t testing.TB) {
	t.Helper()
	if err := s.proc.Freeze(); err != nil {
		t.Fatalf("freeze: %v", err)
	}
}

// Thaw lets a frozen process go on. It then answers what came meanwhile.
func (s *RealServer) Thaw(t testing.TB) {
	t.Helper()
	if err := s.proc.Thaw(); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}

// Kill ends the process at once. Its data are lost.
func (s *RealServer) Kill() { s.proc.Kill() }

// Restart starts the process anew, empty, on the same port; it is killed first when it still runs. The node of a cluster
// remembers who it was: a master that comes back before its replica took over serves its slots without their keys.
func (s *RealServer) Restart(t testing.TB) {
	t.Helper()
	if err := s.proc.Restart(); err != nil {
		t.Fatal(err)
	}
}

// needServers skips a test that starts many servers and waits for them to fail over, unless it was asked for: make cluster
// does. The test's name begins with TestCluster or TestSentinel.
func needServers(t testing.TB) {
	t.Helper()
	if os.Getenv("STOCKADE_CLUSTER") == "" {
		t.Skip("it takes long: make cluster runs it")
	}
	needServer(t)
}

// needServer skips the test, loudly, on a machine without redis-server; a build server must have it.
func needServer(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err == nil {
		return
	}
	const message = "NOT TESTED on a real Redis: redis-server is not in PATH"
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name(), message)
	t.Skip(message)
}
