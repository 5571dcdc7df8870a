package redistest

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RealServer is a redis-server child process that keeps nothing on disk.
type RealServer struct {
	proc *process
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
		proc, err := spawnFree(dir)
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
		s.server.proc.kill()
		_ = os.RemoveAll(s.server.proc.dir)
		s.server = nil
	}
}

// NewReal starts a server of the test's own, with arguments such as "--maxmemory", "1mb".
func NewReal(t testing.TB, args ...string) *RealServer {
	t.Helper()
	needServer(t)
	proc, err := spawnFree(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	s := &RealServer{proc}
	t.Cleanup(func() { s.proc.kill() })
	return s
}

// Addr returns host and port.
func (s *RealServer) Addr() string { return s.proc.addr() }

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

// Freeze stops the process: connections stay open, and nothing is answered. It also ends frozen when the test does.
func (s *RealServer) Freeze(t testing.TB) {
	t.Helper()
	if err := s.proc.freeze(); err != nil {
		t.Fatalf("freeze: %v", err)
	}
}

// Thaw lets a frozen process go on. It then answers what came meanwhile.
func (s *RealServer) Thaw(t testing.TB) {
	t.Helper()
	if err := s.proc.thaw(); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}

// Kill ends the process at once. Its data are lost.
func (s *RealServer) Kill() { s.proc.kill() }

// Restart starts the process anew, empty, on the same port; it is killed first when it still runs.
func (s *RealServer) Restart(t testing.TB) {
	t.Helper()
	s.proc.kill()
	proc, err := spawn(s.proc.dir, s.proc.port, s.proc.args)
	if err != nil {
		t.Fatal(err)
	}
	s.proc = proc
}
