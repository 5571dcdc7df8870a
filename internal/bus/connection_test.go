package bus

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestNoTrafficBeforeTheFirstWait(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		p := redistest.NewProxy(t, s)
		direct := s.Client(t)
		b := newBus(t, p.Client(t))
		time.Sleep(20 * time.Millisecond)
		if n := p.Connections(); n != 0 {
			t.Errorf("%d connections before the first Wait, want none", n)
		}
		if b.Live() {
			t.Error("live before the first Wait")
		}
		b.Wait("k")
		becomesLive(t, b)
		if got := direct.PubSubChannels(t.Context(), "*").Val(); len(got) != 1 || got[0] != channel {
			t.Errorf("channels %v, want %s", got, channel)
		}
		b.Wait("other")
		time.Sleep(20 * time.Millisecond)
		if n := p.Connections(); n != 1 {
			t.Errorf("%d connections, want one subscription", n)
		}
	})
}

func TestLostConnectionIsReplaced(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		p := redistest.NewProxy(t, s)
		direct := s.Client(t)
		b := newBus(t, p.Client(t))
		w := b.Wait("k")
		wakes(t, w)
		p.Refuse(true)
		p.Cut()
		redistest.Eventually(t, time.Second, "the bus is not live", func() bool { return !b.Live() })
		sleepsOn(t, w)
		p.Refuse(false)
		wakes(t, w)
		publish(t, direct, "wk")
		wakes(t, w)
		if n := p.Connections(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// The bus is not live from the moment that its connection fails, however long it takes to make another one.
func TestLostConnectionIsKnownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		p := redistest.NewProxy(t, s)
		var stuck atomic.Bool
		var dials atomic.Int64
		b := newBus(t, s.Client(t, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				if stuck.Load() {
					select {
					case <-ctx.Done():
					case <-time.After(5 * time.Second):
					}
					return nil, syscall.ETIMEDOUT
				}
				return p.Dial(ctx, network, addr)
			}
		}))
		w := b.Wait("k")
		wakes(t, w)
		stuck.Store(true)
		p.Cut()
		synctest.Wait()
		if b.Live() {
			t.Error("live without a connection")
		}
		dials.Store(0)
		time.Sleep(time.Second)
		stuck.Store(false)
		wakes(t, w)
		if n := dials.Load(); n > 3 {
			t.Errorf("dialed %d times for one connection", n)
		}
	})
}

func TestKilledConnectionIsReplaced(t *testing.T) {
	rdb := redistest.Real(t).Client(t)
	b := newBus(t, rdb)
	w := b.Wait("k")
	wakes(t, w)
	if n, err := rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); n != 1 || err != nil {
		t.Fatalf("killed %d, %v, want 1", n, err)
	}
	wakes(t, w)
	publish(t, rdb, "wk")
	wakes(t, w)
	if list := rdb.ClientList(t.Context()).Val(); strings.Count(list, "sub=1") != 1 {
		t.Errorf("subscribed clients, want one:\n%s", list)
	}
}

// A connection that died without a sign is asked after one Interval and given up after another.
func TestSilentConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		dead, direct := redistest.NewProxy(t, s), s.Client(t)
		var current atomic.Pointer[redistest.Proxy]
		current.Store(dead)
		b := newBus(t, s.Client(t, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return current.Load().Dial(ctx, network, addr)
			}
		}))
		w := b.Wait("k")
		wakes(t, w)
		time.Sleep(10 * Interval)
		if !b.Live() {
			t.Error("a silent subscription is not live though it answers pings")
		}
		sleepsOn(t, w)
		current.Store(redistest.NewProxy(t, s)) // the network leads to the server again, but not for the connections that there are
		dead.Swallow(true)
		start := time.Now()
		wakes(t, w)
		if d := time.Since(start); d > 2*Interval+maxRetry/10 {
			t.Errorf("noticed after %v, want %v", d, 2*Interval)
		}
		publish(t, direct, "wk")
		wakes(t, w)
	})
}

func TestWithoutTheRightToSubscribe(t *testing.T) {
	s := redistest.NewReal(t)
	admin := s.Client(t)
	for _, user := range [][]any{
		{"no-channel", "on", ">pw", "~*", "+@all", "resetchannels"},
		{"no-command", "on", ">pw", "~*", "&*", "+@all", "-subscribe"},
	} {
		t.Run(user[0].(string), func(t *testing.T) {
			if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER"}, user...)...).Err(); err != nil {
				t.Fatal(err)
			}
			var dials atomic.Int64
			b := newBus(t, s.Client(t, func(o *redis.Options) {
				o.Username, o.Password = user[0].(string), "pw"
				o.OnConnect = func(context.Context, *redis.Conn) error { dials.Add(1); return nil }
			}))
			w := b.Wait("k")
			time.Sleep(time.Second)
			if b.Live() {
				t.Error("live without the right to subscribe")
			}
			sleepsOn(t, w)
			// 50, 100, 200, 400 ms apart, each ±50 %.
			if n := dials.Load(); n < 2 || n > 10 {
				t.Errorf("connected %d times in a second, want a few", n)
			}
		})
	}
}

// Attempts grow rare while nobody answers, and the bus comes up by itself when somebody does.
func TestAttemptsWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		p := redistest.NewProxy(t, s)
		p.Refuse(true)
		var sessions atomic.Int64
		b := newBus(t, s.Client(t, func(o *redis.Options) {
			o.DialerRetries = 1
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				sessions.Add(1)
				return p.Dial(ctx, network, addr)
			}
		}))
		w := b.Wait("k")
		time.Sleep(5 * time.Minute)
		if n := sessions.Load(); n < 10 || n > 200 {
			t.Errorf("%d attempts in five minutes, want some at most every %v", n, maxRetry/2)
		}
		sleepsOn(t, w)
		p.Refuse(false)
		time.Sleep(2 * maxRetry)
		if !b.Live() {
			t.Error("not live though the server is back")
		}
		wakes(t, w)
	})
}
