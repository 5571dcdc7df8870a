// Package redistest gives tests a Redis: a fake one that lives in a synctest bubble, a real child process, a cluster,
// a sentinel trio; and the faults to put between it and a client. Only tests import it.
package redistest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// Server is a single Redis that a test talks to.
type Server interface {
	// Options returns what a client needs to reach the server. The caller may change them.
	Options() *redis.Options
	// Client returns a client with a pool of its own, closed when the test ends.
	Client(t testing.TB, change ...func(*redis.Options)) *redis.Client
	Dialer
}

// Dialer connects to a server, or to one of several by its address.
type Dialer interface {
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
}

// Each runs a test on the fake in a bubble of its own, and on the real server.
func Each(t *testing.T, f func(t *testing.T, s Server)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, Fake(t)) })
	})
	t.Run("real", func(t *testing.T) { f(t, Real(t)) })
}

// Ring returns a ring whose shards are the given servers, named 0, 1 and so on.
func Ring(t testing.TB, shards []Server, change ...func(*redis.RingOptions)) *redis.Ring {
	t.Helper()
	opt := &redis.RingOptions{Addrs: map[string]string{}, PoolSize: 1000} // see FakeServer.Options
	dialers := map[string]Dialer{}
	for i, s := range shards {
		// The addresses only tell the shards apart: each is reached through its own Dial.
		addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: i + 1}).String()
		opt.Addrs[string(rune('0'+i))] = addr
		dialers[addr] = s
	}
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialers[addr].Dial(ctx, network, "")
	}
	for _, f := range change {
		f(opt)
	}
	ring := redis.NewRing(opt)
	t.Cleanup(func() { _ = ring.Close() })
	return ring
}

// newClient is the Client method of every Server.
func newClient(t testing.TB, opt *redis.Options, change []func(*redis.Options)) *redis.Client {
	t.Helper()
	for _, f := range change {
		f(opt)
	}
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
