package bus

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestWaitAfterClose(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		p := redistest.NewProxy(t, s)
		b := New(p.Client(t), channel, Events{})
		b.Close()
		w := b.Wait("k")
		sleepsOn(t, w)
		w.Stop()
		b.Close()
		if n := p.Connections(); n != 0 || b.Live() {
			t.Errorf("%d connections, live %t, after Close", n, b.Live())
		}
	})
}

func TestCloseEndsTheSubscription(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		w := b.Wait("k")
		wakes(t, w)
		b.Close()
		if b.Live() {
			t.Error("live after Close")
		}
		redistest.Eventually(t, time.Second, "the server sees nobody subscribed", func() bool {
			return len(rdb.PubSubChannels(t.Context(), "*").Val()) == 0
		})
		publish(t, rdb, "wk")
		sleepsOn(t, w)
	})
}

// Close waits for a client call that is under way, which the client's own time-outs end; never for a message.
func TestCloseWhileTheServerIsFrozenOrGone(t *testing.T) {
	const timeout = 300 * time.Millisecond
	for _, c := range []struct {
		name string
		end  func(t *testing.T, s *redistest.RealServer)
	}{
		{"frozen", func(t *testing.T, s *redistest.RealServer) { s.Freeze(t) }},
		{"gone", func(_ *testing.T, s *redistest.RealServer) { s.Kill() }},
	} {
		for _, when := range []string{"live", "connecting"} {
			t.Run(c.name+" "+when, func(t *testing.T) {
				s := redistest.NewReal(t)
				b := newBus(t, s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = timeout, timeout }))
				if when == "connecting" {
					c.end(t, s)
				}
				w := b.Wait("k")
				if when == "live" {
					wakes(t, w)
					c.end(t, s)
				}
				time.Sleep(20 * time.Millisecond)
				start := time.Now()
				b.Close()
				if d := time.Since(start); d > 3*timeout {
					t.Errorf("Close took %v", d)
				}
			})
		}
	}
}

func TestClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Fake(t).Client(t)
		b := newBus(t, rdb)
		wakes(t, b.Wait("k"))
		if err := rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if b.Live() {
			t.Error("live with a closed client")
		}
		if n := len(b.sessions); n != 0 {
			t.Errorf("%d subscriptions are tried with a closed client", n)
		}
	})
}
