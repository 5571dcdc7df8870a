package stockade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// When Redis fails, all keys are one load, remembered for a second; or an error, by policy.
func TestGetManyInAnOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		c := open[string](t, p.Client(t))
		strict := open[string](t, p.Client(t), func(o *Options) { o.WhenRedisFails = ReturnError })
		var o table
		got, err := c.GetMany(t.Context(), []string{"before"}, o.load)
		wantValues(t, got, err, "before")
		begin()
		begun := time.Now()
		for range 3 {
			got, err := c.GetMany(t.Context(), []string{"a", "b", "absent"}, o.load)
			wantValues(t, got, err, "a", "b")
		}
		if took := time.Since(begun); took > 3*defaultRedisTimeout {
			t.Errorf("took %v", took)
		}
		want(t, "loads", o.loads(), "[[before] [a absent b]]")
		got, err = strict.GetMany(t.Context(), []string{"a", "before"}, o.load)
		var keys *KeysError
		if len(got) != 0 || !errors.As(err, &keys) || len(keys.Errs) != 2 || !errors.Is(err, ErrRedis) {
			t.Errorf("got %v, %v", got, err)
		}
		end()
		redistest.Eventually(t, 10*time.Second, "stored again", func() bool {
			got, err := c.GetMany(t.Context(), []string{"a", "b", "before"}, o.load)
			wantValues(t, got, err, "a", "b", "before")
			return storedIn(c, "a") == "v of a" && storedIn(c, "b") == "v of b"
		})
	})
}

// A large batch ends in time whichever step is frozen.
func TestABatchOfManyKeysWhileRedisFreezes(t *testing.T) {
	for _, what := range []string{"acquire", "commit", "renew"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
				faults := redistest.NewFaults(t)
				rdb.AddHook(faults)
				c := open[string](t, rdb)
				faults.Delay(30, runs(what), 3*time.Second)
				o := table{before: func(context.Context, []string) error { time.Sleep(time.Second); return nil }}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begun := time.Now()
				keys := numbered(2000)
				got, err := c.GetMany(ctx, keys, o.load)
				wantValues(t, got, err, keys...)
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
				faults.Clear()
				time.Sleep(20 * time.Second)
				want(t, "leases", leases(t, s), 0)
				want(t, "filling", int(c.view.filling.count.Load()), 0)
				want(t, "permits", c.view.permits.TryAcquire(64), true)
				c.view.permits.Release(64)
			})
		})
	}
}

// I4: a lost reply of any step of a batch costs nothing but time.
func TestGetManyLosesAReply(t *testing.T) {
	for _, step := range []string{"acquire", "commit"} {
		for _, executed := range []bool{true, false} {
			t.Run(fmt.Sprint(step, " executed ", executed), func(t *testing.T) {
				redistest.Each(t, func(t *testing.T, s redistest.Server) {
					faults := redistest.NewFaults(t)
					rdb := s.Client(t)
					c := open[string](t, rdb)
					var warm table
					_, _ = c.GetMany(t.Context(), []string{"warm"}, warm.load)
					rdb.AddHook(faults)
					if executed {
						faults.LoseReply(1, runs(step))
					} else {
						faults.Refuse(1, runs(step), net.ErrClosed)
					}
					var o table
					got, err := c.GetMany(t.Context(), []string{"a", "b", "c"}, o.load)
					wantValues(t, got, err, "a", "b", "c")
					want(t, "loads", o.loads(), "[[a b c]]")
					for _, key := range []string{"a", "b", "c"} {
						want(t, key, storedIn(c, key), "v of "+key)
					}
					if n := leases(t, s); n != 0 {
						t.Errorf("%d leases are left", n)
					}
				})
			})
		}
	}
}

// A batch of which nobody knows whether it was granted leaves no leases, and neither does one that was granted too late.
func TestABatchLeavesNoLeases(t *testing.T) {
	for name, fault := range map[string]func(*redistest.Faults){
		"lost":       func(f *redistest.Faults) { f.LoseReply(1, runs("acquire")) },
		"unanswered": func(f *redistest.Faults) { f.LoseReply(32, runs("acquire")) }, // as often as it is tried
		"late": func(f *redistest.Faults) {
			reached, release := f.Block(runs("acquire"))
			go func() { <-reached; time.Sleep(2 * defaultRedisTimeout); release() }()
		},
		"fails": func(f *redistest.Faults) { f.Refuse(1, runs("commit"), refusal("ERR no")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
				c := open[string](t, rdb, func(o *Options) { o.LeaseTTL = time.Hour })
				var warm table
				_, _ = c.GetMany(t.Context(), []string{"warm"}, warm.load) // else the server does not know the scripts
				faults := redistest.NewFaults(t)
				rdb.AddHook(faults)
				fault(faults)
				var o table
				got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
				wantValues(t, got, err, "a", "b")
				time.Sleep(time.Second)
				if n := leases(t, s); n != 0 {
					t.Errorf("%d leases are left", n)
				}
			})
		})
	}
}

// I11: many calls of which all are refused tell no time.
func TestRefusalsDoNotSetTheClock(t *testing.T) {
	for _, op := range []string{"getmany", "get", "invalidate"} {
		t.Run(op, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				c := open[string](t, rdb, func(o *Options) { o.TTL, o.StaleFor, o.KeepFor = time.Second, time.Second, time.Hour })
				faults := redistest.NewFaults(t)
				rdb.AddHook(faults)
				if err := c.Set(t.Context(), "a", "old"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if _, err := c.Lookup(t.Context(), "a"); !errors.Is(err, ErrMiss) {
					t.Errorf("before: %v", err)
				}
				oom := refusal("OOM command not allowed when used memory > 'maxmemory'.")
				var o table
				switch op {
				case "getmany":
					faults.Refuse(1, runs("acquire"), oom)
					got, err := c.GetMany(t.Context(), []string{"x", "y"}, o.load)
					wantValues(t, got, err, "x", "y")
				case "get":
					faults.Refuse(1, runs("acquire"), oom)
					_, err := c.Get(t.Context(), "x", returns("v").Load)
					if err != nil {
						t.Error(err)
					}
				case "invalidate":
					faults.Refuse(1, runs("invalidate"), oom)
					if err := c.Invalidate(t.Context(), "x"); err == nil {
						t.Error("no error")
					}
				}
				e, err := c.Lookup(t.Context(), "a")
				if !errors.Is(err, ErrMiss) {
					t.Errorf("after: got %q %v (source %v), %v", e.Value, e.Age, e.Source, err)
				}
				got, err := c.GetMany(t.Context(), []string{"a"}, o.load)
				wantValues(t, got, err, "a")
			})
		})
	}
}

// A cluster that does not tell its slots is asked once, not for each key.
func TestGetManyWithoutSlots(t *testing.T) {
	for _, refused := range []bool{true, false} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: s.Dial, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					time.Sleep(10 * time.Millisecond)
					if refused {
						return nil, refusal("NOPERM this user has no permissions to run the 'cluster|slots' command")
					}
					return nil, errors.New("connection refused")
				}})
				defer time.Sleep(2 * time.Second)
				defer rdb.Close()
				c := open[string](t, rdb)
				var o table
				if v, err := c.Get(t.Context(), "x", one[string](o.load, "x")); v != "v of x" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
				begun := time.Now()
				keys := numbered(100)
				got, err := c.GetMany(t.Context(), keys, o.load)
				wantValues(t, got, err, keys...)
				if took := time.Since(begun); took > time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// Close ends a batch: its callers get ErrClosed, its leases are given back.
func TestCloseEndsABatch(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		began := make(chan struct{})
		o := table{before: func(ctx context.Context, _ []string) error { close(began); <-ctx.Done(); return ctx.Err() }}
		failed := make(chan error)
		go func() {
			_, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
			failed <- err
		}()
		<-began
		_ = c.Close()
		var keys *KeysError
		if err := <-failed; !errors.As(err, &keys) || keys.Errs["a"] != ErrClosed || keys.Errs["b"] != ErrClosed {
			t.Errorf("got %v", err)
		}
		if n := leases(t, s); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// I10, at any moment of a batch.
func TestCloseEndsABatchAtAnyMoment(t *testing.T) {
	for ms := range 12 {
		t.Run(fmt.Sprint(ms), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				pause := func([]redis.Cmder, error) { time.Sleep(10 * time.Millisecond) }
				rdb.AddHook(around{pause, pause})
				c := open[string](t, rdb, func(o *Options) { o.MaxLoads, o.StaleFor = 2, time.Hour })
				_ = c.Set(t.Context(), "stale", "s")
				_ = c.Expire(t.Context(), "stale")
				o := table{before: func(ctx context.Context, _ []string) error { time.Sleep(20 * time.Millisecond); return nil }}
				var wg sync.WaitGroup
				for i := range 6 {
					wg.Go(func() {
						keys := append(numbered(5 + i)[i:], "stale")
						_, _ = c.GetMany(t.Context(), keys, o.load)
					})
				}
				time.Sleep(time.Duration(ms)*10*time.Millisecond + time.Duration(ms%3)*5*time.Millisecond)
				_ = c.Close()
				begun := time.Now()
				wg.Wait()
				if d := time.Since(begun); d > 0 {
					t.Errorf("callers waited %v beyond Close", d)
				}
				synctest.Wait()
				want(t, "leases", leases(t, s), 0)
				want(t, "filling", int(c.view.filling.count.Load()), 0)
				want(t, "refreshing", int(c.view.refreshing.count.Load()), 0)
				want(t, "permits", c.view.permits.TryAcquire(2), true)
				want(t, "background", c.view.background.TryAcquire(1), true)
			})
		})
	}
}
