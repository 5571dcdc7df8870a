package bus

import (
	"context"
	"errors"
	"maps"
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

func TestMain(m *testing.M) { redistest.Main(m) }

const channel = "ns:wake"

func newBus(t *testing.T, rdb redis.UniversalClient) *Bus {
	b := New(rdb, channel, Events{})
	t.Cleanup(b.Close)
	return b
}

func becomesLive(t *testing.T, b *Bus) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, "the bus is live", b.Live)
}

// waiters registers waiters and returns when the bus is live and none of them is signalled.
func waiters(t *testing.T, b *Bus, names ...string) []*Waiter {
	t.Helper()
	var list []*Waiter
	for _, name := range names {
		list = append(list, b.Wait(name))
	}
	wakes(t, list[0])
	if !b.Live() { // it waits until all are signalled, too
		t.Error("not live after a waiter was signalled")
	}
	for _, w := range list[1:] {
		select {
		case <-w.C:
		default: // registered when the bus was live
		}
	}
	return list
}

func publish(t *testing.T, rdb redis.UniversalClient, message string) {
	t.Helper()
	if err := rdb.Publish(t.Context(), channel, message).Err(); err != nil {
		t.Fatal(err)
	}
}

func wakes(t *testing.T, w *Waiter) {
	t.Helper()
	select {
	case <-w.C:
	case <-time.After(10 * time.Second):
		t.Fatalf("waiter of %q was not woken", w.name)
	}
}

func sleepsOn(t *testing.T, w *Waiter) {
	t.Helper()
	select {
	case <-w.C:
		t.Errorf("waiter of %q was woken", w.name)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestMessageWakesTheWaitersOfItsName(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		list := waiters(t, b, "k", "k", "kk")
		mine, also, other := list[0], list[1], list[2]
		publish(t, rdb, "wk")
		wakes(t, mine)
		wakes(t, also)
		publish(t, rdb, "ioriginxxk")
		wakes(t, mine)
		publish(t, rdb, "")
		publish(t, rdb, "w")
		publish(t, rdb, "wunknown")
		sleepsOn(t, other)
	})
}

func TestWaitersRegisteredTogetherShareASignal(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		b.Start()
		becomesLive(t, b)
		list, some := b.RegisterAll([]string{"a", "b", "c"})
		list[2].Stop()
		for _, name := range []string{"c", "b"} { // in this order, so that c's would have come
			publish(t, rdb, "w"+name)
		}
		wakes(t, &Waiter{C: some, name: "any"})
		wakes(t, list[1])
		sleepsOn(t, list[0])
		sleepsOn(t, list[2])
		sleepsOn(t, &Waiter{C: some, name: "any"})

		publish(t, rdb, "wb")
		wakes(t, &Waiter{C: some, name: "any"})
		others := b.Regroup(list[1:2]) // its signal is not read yet
		wakes(t, &Waiter{C: others, name: "any other"})
		publish(t, rdb, "wa")
		wakes(t, &Waiter{C: some, name: "any"})
		sleepsOn(t, &Waiter{C: others, name: "any other"})
		publish(t, rdb, "wb")
		wakes(t, &Waiter{C: others, name: "any other"})
		sleepsOn(t, &Waiter{C: some, name: "any"})
	})
}

func TestSignalsNobodyReadAreOne(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		list := waiters(t, b, "k", "last")
		w, last := list[0], list[1]
		for range 3 {
			publish(t, rdb, "wk")
		}
		publish(t, rdb, "wlast")
		wakes(t, last)
		wakes(t, w)
		sleepsOn(t, w)
	})
}

func TestStopUnregisters(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		list := waiters(t, b, "k", "k")
		a, z := list[0], list[1]
		a.Stop()
		a.Stop()
		publish(t, rdb, "wk")
		wakes(t, z)
		sleepsOn(t, a)
		z.Stop()
		if len(b.waiters) != 0 {
			t.Errorf("%d names are left", len(b.waiters))
		}
	})
}

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

func TestRingSubscribesOnEveryShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := []redistest.Server{redistest.Fake(t), redistest.Fake(t), redistest.Fake(t)}
		b := newBus(t, redistest.Ring(t, fakes))
		w := b.Wait("k")
		becomesLive(t, b)
		wakes(t, w)
		for i, s := range fakes {
			publish(t, s.Client(t), "wk")
			select {
			case <-w.C:
			case <-time.After(time.Second):
				t.Errorf("a message on shard %d was not heard", i)
			}
		}
	})
}

func TestRingIsLiveOnlyWithAllItsShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := []redistest.Server{redistest.Fake(t), redistest.Fake(t)}
		p := redistest.NewProxy(t, fakes[0])
		b := newBus(t, redistest.Ring(t, []redistest.Server{p, fakes[1]}))
		w := b.Wait("k")
		becomesLive(t, b)
		wakes(t, w)
		p.Refuse(true)
		p.Cut()
		time.Sleep(time.Minute)
		if b.Live() {
			t.Error("live without one of two shards")
		}
		for len(w.C) > 0 {
			<-w.C
		}
		publish(t, fakes[1].Client(t), "wk")
		wakes(t, w)
		p.Refuse(false)
		time.Sleep(time.Minute)
		if !b.Live() {
			t.Error("not live though the shard is back")
		}
		wakes(t, w)
		publish(t, fakes[0].Client(t), "wk")
		wakes(t, w)
	})
}

// A ring whose shard is away from the beginning is not live before that shard is heard too.
func TestRingIsNotLiveWhileAShardIsYetToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := []redistest.Server{redistest.Fake(t), redistest.Fake(t)}
		p := redistest.NewProxy(t, fakes[0])
		p.Refuse(true)
		ring := redistest.Ring(t, []redistest.Server{p, fakes[1]})
		time.Sleep(time.Minute) // the ring finds the shard down
		b := newBus(t, ring)
		b.Wait("k")
		time.Sleep(time.Second)
		if b.Live() {
			t.Error("live without one of two shards")
		}
		p.Refuse(false)
		time.Sleep(time.Minute)
		if !b.Live() {
			t.Error("not live though the shard is back")
		}
	})
}

func TestRingThatLosesAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := []redistest.Server{redistest.Fake(t), redistest.Fake(t), redistest.Fake(t)}
		ring := redistest.Ring(t, fakes)
		b := newBus(t, ring)
		w := b.Wait("k")
		becomesLive(t, b)
		addrs := maps.Clone(ring.Options().Addrs)
		delete(addrs, "2")
		ring.SetAddrs(addrs)
		time.Sleep(time.Minute)
		for len(w.C) > 0 {
			<-w.C
		}
		for _, s := range fakes[:2] {
			publish(t, s.Client(t), "wk")
			wakes(t, w)
		}
		if n := len(b.sessions); n != 2 {
			t.Errorf("%d subscriptions, want 2", n)
		}
	})
}

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

// A message that comes while waiters come and go is heard by those who stay.
func TestWaitersComeAndGo(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		b := newBus(t, rdb)
		stays := b.Wait("k")
		wakes(t, stays)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				b.Wait("k").Stop()
			}
		}()
		for range 20 {
			publish(t, rdb, "wk")
			wakes(t, stays)
		}
		<-done
		if n := len(b.waiters["k"]); n != 1 {
			t.Errorf("%d waiters are left, want 1", n)
		}
	})
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
