package bus

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

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
		if !b.Live() {
			t.Error("not live with all the shards that are left")
		}
		if n := len(b.sessions); n != 2 {
			t.Errorf("%d subscriptions, want 2", n)
		}
	})
}
