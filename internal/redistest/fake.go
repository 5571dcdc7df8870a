package redistest

import (
	"context"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// FakeServer is a miniredis whose keys expire by the clock, and which no socket leads to: it works in a synctest
// bubble, and there TIME and expiry follow the bubble's clock.
type FakeServer struct {
	Mini *miniredis.Miniredis // to set its clock, for one
	srv  *server.Server
}

// Fake starts a fake server. It ends with the test, after the clients that were made of it later.
func Fake(t testing.TB) *FakeServer {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	first, err := m.Dial() // starts it without a listener
	if err != nil {
		t.Fatalf("start miniredis: %v", err)
	}
	_ = first.Close()
	t.Cleanup(m.Close)
	return &FakeServer{m, m.Server()}
}

// Options returns the options of a client that suits a bubble. Its address is a number, so that nobody asks a resolver
// for it. Its pool never runs dry: whoever waits for a connection does so by a timer that go-redis shares among all
// clients of the process, and the runtime kills a process in which a timer leaves its bubble. It asks for no
// maintenance notifications: two connections that begin at once would wait for each other on a mutex that is held
// while the server answers, and for as long as anybody waits for a mutex the time of a bubble stands still.
func (s *FakeServer) Options() *redis.Options {
	return &redis.Options{
		Addr: "127.0.0.1:0", Dialer: s.Dial, PoolSize: 1000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Client returns a client with a pool of its own, closed when the test ends.
func (s *FakeServer) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, s.Options(), change)
}

// Dial connects to the server.
func (s *FakeServer) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, end := pipe()
	s.srv.ServeConn(end)
	return client, nil
}
