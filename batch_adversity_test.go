package stockade

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

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

// A nil *KeysError in an error is no failure.
func TestABatchLoaderReturnsATypedNil(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
			var failed *KeysError
			return valuesOf(keys), failed
		})
		wantValues(t, got, err, "a", "b")
	})
}

// A context that ends since something else was not found says nothing about the keys.
func TestGetManyEndsWithACauseThatIsNotFound(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		ctx, cancel := context.WithCancelCause(t.Context())
		o := table{before: func(context.Context, []string) error { cancel(ErrNotFound); time.Sleep(time.Second); return nil }}
		got, err := c.GetMany(ctx, []string{"a", "b"}, o.load)
		if err == nil {
			t.Errorf("ended context: got %v, %v", got, err)
		}
	})
}

// A loader that panics says nothing about the keys.
func TestABatchLoaderPanicsWithNotFound(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) { panic(ErrNotFound) })
		if err == nil {
			t.Errorf("panic: got %v, %v", got, err)
		}
	})
}

// A *KeysError counts inside another error too.
func TestABatchLoaderWrapsAKeysError(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
			return valuesOf(keys), fmt.Errorf("db: %w", &KeysError{Errs: map[string]error{"b": ErrNotFound}})
		})
		wantValues(t, got, err, "a") // and b does not exist
		if _, err := c.Lookup(t.Context(), "b"); !errors.Is(err, ErrNotFound) {
			t.Errorf("b: %v", err)
		}
	})
}

// What the Observer keeps does not change.
func TestAGuardEventKeepsItsKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		g := &guard{may: func(context.Context, []string) ([]bool, error) { return nil, errors.New("x") }}
		var event GuardEvent
		c := open[string](t, s.Client(t), guarded(g), func(o *Options) { o.Observer.Guard = func(e GuardEvent) { event = e } })
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
			m := valuesOf(keys)
			for i := range keys {
				keys[i] = "id:" + keys[i]
			}
			return m, nil
		})
		wantValues(t, got, err, "a", "b")
		want(t, "keys", fmt.Sprint(event.Keys), "[a b]")
	})
}

// A message that comes while a renewal is out is answered by the next.
func TestABatchHearsDuringARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb := s.Client(t)
		c, other := open[string](t, rdb), open[string](t, s.Client(t))
		c.bus.Start()
		redistest.Eventually(t, time.Second, "up", c.bus.Live)
		began, finish := make(chan struct{}), make(chan struct{})
		o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
		go func() { _, _ = c.GetMany(t.Context(), []string{"a", "b", "c"}, o.load) }()
		<-began
		// the reply of the renewal takes 20 ms
		rdb.AddHook(&slowReply{step: "renew"})
		if err := other.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if err := other.Invalidate(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		begun := time.Now()
		if v, err := c.Get(t.Context(), "b", returns("newer").Load); v != "newer" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if took := time.Since(begun); took > 50*time.Millisecond {
			t.Errorf("waited %v", took)
		}
		close(finish)
	})
}

// A message that comes before the grant is known is heard.
func TestABatchHearsBeforeItsLoad(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				c, other := open[string](t, rdb), open[string](t, s.Client(t))
				c.bus.Start()
				redistest.Eventually(t, time.Second, "up", c.bus.Live)
				began, finish := make(chan struct{}), make(chan struct{})
				o := table{before: func(context.Context, []string) error { close(began); <-finish; return nil }}
				rdb.AddHook(&slowReply{step: "acquire"})
				go func() {
					if many {
						_, _ = c.GetMany(t.Context(), []string{"a", "c"}, o.load)
					} else {
						_, _ = c.Get(t.Context(), "a", BatchLoader[string](o.load).one("a"))
					}
				}()
				time.Sleep(10 * time.Millisecond)
				if err := other.Invalidate(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				<-began
				time.Sleep(10 * time.Millisecond)
				begun := time.Now()
				if v, err := c.Get(t.Context(), "a", returns("newer").Load); v != "newer" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
				if took := time.Since(begun); took > 50*time.Millisecond {
					t.Errorf("waited %v", took)
				}
				close(finish)
			})
		})
	}
}

// What has landed is returned when the context ends.
func TestGetManyReturnsWhatHasLanded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t))
		began, finish := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = c.Get(t.Context(), "slow", func(context.Context) (string, error) { close(began); <-finish; return "v", nil })
		}()
		<-began
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var o table
		keys := append([]string{"slow"}, numbered(20)...)
		got, err := c.GetMany(ctx, keys, o.load)
		want(t, "values", len(got), 20)
		_ = err
		close(finish)
	})
}

// I10, at any moment of a batch.
func TestCloseEndsABatchAtAnyMoment(t *testing.T) {
	for ms := range 12 {
		t.Run(fmt.Sprint(ms), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				rdb.AddHook(slowHook{10 * time.Millisecond})
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
				want(t, "filling", int(c.filling.count.Load()), 0)
				want(t, "refreshing", int(c.refreshing.count.Load()), 0)
				want(t, "permits", c.permits.TryAcquire(2), true)
				want(t, "background", c.background.TryAcquire(1), true)
			})
		})
	}
}

type slowHook struct{ d time.Duration }

func (h slowHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h slowHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(h.d)
		err := next(ctx, cmd)
		time.Sleep(h.d)
		return err
	}
}
func (h slowHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(h.d)
		err := next(ctx, cmds)
		time.Sleep(h.d)
		return err
	}
}

// A refresh of many keys gives back what it holds, however it ends.
func TestABatchOfRefreshesGivesBack(t *testing.T) {
	for name, fault := range map[string]func(*redistest.Faults){
		"none":         func(*redistest.Faults) {},
		"acquire lost": func(f *redistest.Faults) { f.LoseReply(40, runs("acquire")) },
		"acquire oom":  func(f *redistest.Faults) { f.Refuse(1, runs("acquire"), refusal("OOM x")) },
		"commit oom":   func(f *redistest.Faults) { f.Refuse(1, runs("commit"), refusal("OOM x")) },
		"commit slow":  func(f *redistest.Faults) { f.Delay(1, runs("commit"), time.Second) },
		"acquire slow": func(f *redistest.Faults) { f.Delay(1, runs("acquire"), time.Second) },
	} {
		for _, end := range []string{"ok", "err", "panic", "nil", "hang"} {
			t.Run(name+" "+end, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
					rdb := s.Client(t)
					faults := redistest.NewFaults(t)
					rdb.AddHook(faults)
					c := open[string](t, rdb, func(o *Options) { o.MaxLoads, o.StaleFor, o.LoadTimeout = 1, time.Hour, time.Second })
					keys := numbered(5)
					for _, k := range keys {
						_ = c.Set(t.Context(), k, "old")
					}
					_ = c.Expire(t.Context(), keys...)
					time.Sleep(time.Second)
					fault(faults)
					got, err := c.GetMany(t.Context(), keys, func(ctx context.Context, keys []string) (map[string]string, error) {
						switch end {
						case "err":
							return nil, errors.New("x")
						case "panic":
							panic("x")
						case "nil":
							return nil, nil
						case "hang":
							time.Sleep(5 * time.Second)
						}
						slices.Reverse(keys)
						return valuesOf(keys), nil
					})
					want(t, "values", fmt.Sprint(len(got), err), "5 <nil>")
					time.Sleep(20 * time.Second)
					faults.Clear()
					want(t, "leases", leases(t, s), 0)
					want(t, "refreshing", int(c.refreshing.count.Load()), 0)
					want(t, "flights", int(c.stats.flights.Load()), 0)
					want(t, "loading", int(c.stats.loading.Load()), 0)
					want(t, "permits", c.permits.TryAcquire(1), true)
					c.permits.Release(1)
					want(t, "background", c.background.TryAcquire(1), true)
					c.background.Release(1)
				})
			})
		}
	}
}

type slowReply struct {
	slowHook
	step string
	once sync.Once
}

func (h *slowReply) after(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		var words []string
		for _, a := range cmd.Args() {
			words = append(words, fmt.Sprint(a))
		}
		if cmd.Err() == nil && runs(h.step)(words) {
			h.once.Do(func() { time.Sleep(20 * time.Millisecond) })
		}
	}
}
func (h *slowReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		cmd.SetErr(err)
		h.after(cmd)
		return err
	}
}
func (h *slowReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.after(cmds...)
		return err
	}
}

// I1, with Get, GetMany and Invalidate at random.
func TestBatchesAmidInvalidations(t *testing.T) {
	for seed := range 5 {
		inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			var rmu sync.Mutex
			rnd := func(n int) int { rmu.Lock(); defer rmu.Unlock(); return rng.IntN(n) }
			keys := numbered(6)
			var mu sync.Mutex
			db := map[string]int{}
			acked := map[string]int{}
			var caches []*Cache[int]
			for range 3 {
				rdb := s.Client(t)
				rdb.AddHook(randomHook{rnd})
				c, err := New[int](rdb, Options{Prefix: "test", TTL: 40 * time.Millisecond, MaxLoads: 1 + rnd(3), FailureBackoff: -1, LeaseTTL: 1000 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				caches = append(caches, c)
			}
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					for range 40 {
						c := caches[rnd(3)]
						switch rnd(5) {
						case 0:
							k := keys[rnd(6)]
							mu.Lock()
							db[k]++
							v := db[k]
							mu.Unlock()
							if c.Invalidate(t.Context(), k) == nil {
								mu.Lock()
								acked[k] = max(acked[k], v)
								mu.Unlock()
							}
						default:
							some := slices.Clone(keys[rnd(4):])
							floor := map[string]int{}
							mu.Lock()
							for _, k := range some {
								floor[k] = acked[k]
							}
							mu.Unlock()
							load := func(_ context.Context, keys []string) (map[string]int, error) {
								time.Sleep(time.Duration(rnd(10)) * time.Millisecond)
								m := map[string]int{}
								mu.Lock()
								for _, k := range keys {
									m[k] = db[k]
								}
								mu.Unlock()
								time.Sleep(time.Duration(rnd(20)) * time.Millisecond)
								return m, nil
							}
							ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
							if rnd(3) == 0 {
								v, err := c.Get(ctx, some[0], BatchLoader[int](load).one(some[0]))
								if err != nil || v < floor[some[0]] {
									t.Errorf("seed %d: Get %s: %d, want at least %d, %v", seed, some[0], v, floor[some[0]], err)
								}
							} else {
								got, err := c.GetMany(ctx, some, load)
								for _, k := range some {
									if v, ok := got[k]; !ok || v < floor[k] {
										t.Errorf("seed %d: %s: %d %v, want at least %d, %v", seed, k, v, ok, floor[k], err)
									}
								}
							}
							cancel()
						}
					}
				})
			}
			wg.Wait()
			for _, c := range caches {
				_ = c.Close()
				want(t, "permits", c.permits.TryAcquire(int64(c.opts.MaxLoads)), true)
				want(t, "filling", int(c.filling.count.Load()), 0)
				want(t, "refreshing", int(c.refreshing.count.Load()), 0)
			}
			want(t, "leases", leases(t, s), 0)
		})
		if t.Failed() {
			return
		}
	}
}

type randomHook struct{ rnd func(int) int }

func (h randomHook) pause()                                      { time.Sleep(time.Duration(h.rnd(6)) * time.Millisecond) }
func (h randomHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h randomHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.pause()
		err := next(ctx, cmd)
		h.pause()
		return err
	}
}
func (h randomHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pause()
		err := next(ctx, cmds)
		h.pause()
		return err
	}
}

// A large batch ends in time whichever step is frozen.
func TestABatchOfManyKeysWhileRedisFreezes(t *testing.T) {
	for _, what := range []string{"acquire", "commit", "renew"} {
		t.Run(what, func(t *testing.T) {
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
				want(t, "filling", int(c.filling.count.Load()), 0)
				want(t, "permits", c.permits.TryAcquire(64), true)
				c.permits.Release(64)
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
				if v, err := c.Get(t.Context(), "x", BatchLoader[string](o.load).one("x")); v != "v of x" || err != nil {
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

// I7: an error of one caller's context is not another's.
func TestABatchKeepsAPrivateErrorToItself(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads = 1 })
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _ = c.GetMany(ctx, []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) { <-ctx.Done(); return nil, ctx.Err() })
		}()
		synctest.Wait()
		var o table
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := c.GetMany(t.Context(), []string{"b", "c", "a"}, o.load)
			wantValues(t, got, err, "a", "b", "c")
		}()
		time.Sleep(time.Second)
		cancel()
		<-done
		time.Sleep(time.Minute)
		want(t, "permits", c.permits.TryAcquire(1), true)
		c.permits.Release(1)
	})
}

// Batches in batches need no places of their own.
func TestBatchesInBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := open[string](t, s.Client(t), func(o *Options) { o.MaxLoads, o.LoadTimeout = 1, 5*time.Second })
		var depth func(n int) BatchLoader[string]
		depth = func(n int) BatchLoader[string] {
			return func(ctx context.Context, keys []string) (map[string]string, error) {
				if n > 0 {
					var more []string
					for _, k := range keys {
						more = append(more, k+"x", k)
					}
					got, err := c.GetMany(ctx, more, depth(n-1))
					var ke *KeysError
					if !errors.As(err, &ke) || len(ke.Errs) != len(keys) || len(got) != len(keys) {
						t.Errorf("depth %d: %v, %v", n, got, err)
					}
				}
				return valuesOf(keys), nil
			}
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				keys := []string{fmt.Sprint(i), fmt.Sprint("s", i)}
				got, err := c.GetMany(t.Context(), keys, depth(4))
				wantValues(t, got, err, keys...)
			})
		}
		wg.Wait()
		want(t, "permits", c.permits.TryAcquire(1), true)
		c.permits.Release(1)
		want(t, "filling", int(c.filling.count.Load()), 0)
	})
}
