package stockade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// skewed lets a fake server's clock be ahead of this machine's by what the function sets, which may be less than zero.
// The clock goes on by the millisecond.
func skewed(t testing.TB, s *redistest.FakeServer, by time.Duration) (set func(time.Duration)) {
	t.Helper()
	var skew atomic.Int64
	set = func(d time.Duration) {
		skew.Store(int64(d))
		s.Mini.SetTime(time.Now().Add(d))
	}
	set(by)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.Mini.SetTime(time.Now().Add(time.Duration(skew.Load())))
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	return set
}

var skews = []time.Duration{0, 10 * time.Second, -10 * time.Second, 70 * time.Second, -70 * time.Second}

// wantAge checks an age in a bubble, where only the millisecond of heads and of the skewed clock is lost.
func wantAge(t testing.TB, e Entry[string], err error, source Source, age time.Duration) {
	t.Helper()
	if err != nil || e.Source != source || (e.Age-age).Abs() > 3*time.Millisecond {
		t.Errorf("got %v of age %v, %v, want %v of age %v", e.Source, e.Age, err, source, age)
	}
}

// I11: freshness and ages go by the server's clock, whatever this machine's says. The two instances differ in what they
// know of the server: one has asked it for the time long ago.
func TestSkewedClocks(t *testing.T) {
	for _, skew := range skews {
		synctest.Test(t, func(t *testing.T) {
			s := redistest.Fake(t)
			skewed(t, s, skew)
			lifetimes := func(o *Options) { o.TTL, o.StaleFor, o.KeepFor = 5*time.Second, 3*time.Second, 2*time.Second }
			a := open[string](t, s.Client(t), lifetimes)
			if _, err := a.Lookup(t.Context(), "other"); !errors.Is(err, ErrMiss) {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			b := open[string](t, s.Client(t), lifetimes)
			o := slowly("v")
			for key, write := range map[string]func() error{
				"loaded": func() error { _, err := b.Get(t.Context(), "loaded", o.Load); return err },
				"set":    func() error { time.Sleep(testLoad); return b.Set(t.Context(), "set", "v") },
			} {
				begun := time.Now()
				if err := write(); err != nil {
					t.Fatal(err)
				}
				written := time.Now()
				if key == "set" {
					begun = written
				}
				look := func(at time.Duration, check func(Entry[string], error)) {
					time.Sleep(time.Until(written.Add(at)))
					for _, c := range []*Cache[string]{a, b} {
						check(c.Lookup(t.Context(), key))
					}
				}
				fresh := func(e Entry[string], err error) { t.Helper(); wantAge(t, e, err, Hit, time.Since(begun)) }
				stale := func(e Entry[string], err error) { t.Helper(); wantAge(t, e, err, Stale, time.Since(begun)) }
				gone := func(e Entry[string], err error) {
					t.Helper()
					if !errors.Is(err, ErrMiss) {
						t.Errorf("got %+v, %v", e, err)
					}
				}
				look(0, fresh)
				look(5*time.Second-5*time.Millisecond, fresh)
				look(5*time.Second+5*time.Millisecond, stale)
				look(8*time.Second-5*time.Millisecond, stale)
				look(8*time.Second+5*time.Millisecond, gone)
			}
			wantLoads(t, o, 1)

			// A lease outlives its TTL by renewals, a failure lasts for its backoff, a crashed holder for its lease.
			var wg sync.WaitGroup
			long := &origin[string]{load: func(context.Context) (string, error) { time.Sleep(7 * time.Second); return "v", nil }}
			for _, c := range []*Cache[string]{a, b} {
				wg.Go(func() {
					if _, err := c.Get(t.Context(), "long", long.Load); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			wantLoads(t, long, 1)
			failing := fails(0, errSource)
			for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(5 * time.Millisecond) {
				if _, err := a.Get(t.Context(), "failing", failing.Load); err == nil {
					t.Error("no failure")
				}
			}
			if n := failing.loads.Load(); n < 9 || n > 10 {
				t.Errorf("%d failed loads in a second, with a backoff of 100 ms", n)
			}
			crash(t, s, a, "crashed", 2*time.Second)
			begun := time.Now()
			if _, err := b.Get(t.Context(), "crashed", returns("v").Load); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took < 1900*time.Millisecond || took > 2200*time.Millisecond {
				t.Errorf("waited %v for a lease of 2 s", took)
			}
		})
	}
}

// A server's clock that is set while a cache knows it. No call fails and no lease is lost for it; what was written before
// lives on by the new clock, and a step that meets the new clock corrects what the cache knows.
func TestAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{10 * time.Second, -10 * time.Second, 70 * time.Second, -70 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := redistest.Fake(t)
			set := skewed(t, s, 0)
			fail := func(o *Options) { o.Observer.Redis = func(e RedisEvent) { t.Errorf("told of %+v", e) } }
			a, b := open[string](t, s.Client(t), fail), open[string](t, s.Client(t), fail)
			for i, c := range []*Cache[string]{a, b} {
				if _, err := c.Get(t.Context(), fmt.Sprint("before ", i), returns("v").Load); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			// During a load, for which others wait.
			long := &origin[string]{load: func(context.Context) (string, error) { time.Sleep(3 * time.Second); return "v", nil }}
			var wg sync.WaitGroup
			for _, c := range []*Cache[string]{a, b} {
				wg.Go(func() {
					if v, err := c.Get(t.Context(), "long", long.Load); v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
				})
			}
			time.Sleep(time.Second)
			set(jump)
			asked := time.Now()
			if err := a.Set(t.Context(), "set", "v"); err != nil {
				t.Errorf("Set: %v", err)
			}
			if v, err := a.Get(t.Context(), "loaded", returns("v").Load); v != "v" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
			if took := time.Since(asked); took > 0 {
				t.Errorf("took %v", took)
			}
			for _, key := range []string{"set", "loaded"} {
				e, err := a.Lookup(t.Context(), key)
				wantAge(t, e, err, Hit, 0)
			}
			wg.Wait()
			if n := long.loads.Load(); n > 2 || n > 1 && jump < 0 { // forwards: the lease has expired
				t.Errorf("%d loads", n)
			}
			if e, err := b.Lookup(t.Context(), "set"); err != nil || e.Value != "v" {
				t.Errorf("from elsewhere: got %+v, %v", e, err)
			}
			want(t, "leases", leases(t, s), 0)
		})
	}
}

// A failover to a server whose clock is another's: what is written there is fresh for its TTL. A cache that met the
// outage learns the clock anew with its first read.
func TestFailoverToAnotherClock(t *testing.T) {
	for _, skew := range skews {
		synctest.Test(t, func(t *testing.T) {
			patient(t)
			first, second := redistest.Fake(t), redistest.Fake(t)
			skewed(t, second, skew)
			to := &switched{to: first}
			p := redistest.NewProxy(t, to)
			client := func() *redis.Client {
				opt := first.Options()
				opt.Dialer = p.Dial
				rdb := redis.NewClient(opt)
				t.Cleanup(func() { _ = rdb.Close() })
				return rdb
			}
			ttl := func(o *Options) { o.TTL, o.StaleFor = 5*time.Second, time.Second }
			a, b := open[string](t, client(), ttl), open[string](t, client(), ttl)
			for _, c := range []*Cache[string]{a, b} {
				if err := c.Set(t.Context(), "before", "v"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			p.Refuse(true)
			p.Cut()
			for _, c := range []*Cache[string]{a, b} {
				if _, err := c.Lookup(t.Context(), "before"); !errors.Is(err, ErrRedis) {
					t.Errorf("got %v", err)
				}
			}
			if err := open[string](t, second.Client(t), ttl).Set(t.Context(), "theirs", "v"); err != nil {
				t.Error(err)
			}
			to.set(second)
			p.Refuse(false)
			for _, c := range []*Cache[string]{a, b} {
				redistest.Eventually(t, 2*testTimeout, "it works again", func() bool {
					_, err := c.Lookup(t.Context(), "before")
					return errors.Is(err, ErrMiss)
				})
				// The trip that brought the time may have taken as long as the client's attempts to connect, and by half of
				// that the time may be wrong.
				e, err := c.Lookup(t.Context(), "theirs")
				if err != nil || e.Source != Hit || e.Age > time.Second {
					t.Errorf("with a server that is ahead by %v: got %+v, %v", skew, e, err)
				}
				if err := c.Invalidate(t.Context(), "other"); err != nil { // a quick trip
					t.Error(err)
				}
			}
			if v, err := a.Get(t.Context(), "k", slowly("v").Load); v != "v" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
			e, err := b.Lookup(t.Context(), "k") // a Set would not be repeated on another connection
			wantAge(t, e, err, Hit, testLoad)
			if err := b.Set(t.Context(), "set", "v"); err != nil {
				t.Error(err)
			}
			e, err = a.Lookup(t.Context(), "set")
			wantAge(t, e, err, Hit, 0)
			time.Sleep(5*time.Second + 5*time.Millisecond)
			for _, c := range []*Cache[string]{a, b} {
				e, err := c.Lookup(t.Context(), "set")
				wantAge(t, e, err, Stale, 5*time.Second+5*time.Millisecond)
			}
		})
	}
}

// switched is a server that is one of two.
type switched struct {
	mu sync.Mutex
	to redistest.Dialer // guarded by mu
}

func (s *switched) set(to redistest.Dialer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

// Dial connects to the one that serves now.
func (s *switched) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	return to.Dial(ctx, network, addr)
}
