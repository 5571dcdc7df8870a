package stockade

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// everyCall makes each call of a cache once, on the given keys in turn.
func everyCall(c *Cache[string]) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Get": func(ctx context.Context) error { _, err := c.Get(ctx, "k", slowly("v").Load); return err },
		"Fetch": func(ctx context.Context) error {
			_, err := c.Fetch(ctx, "k2", func(ctx context.Context, _ *Entry[string]) (Entry[string], error) {
				v, err := slowly("v").Load(ctx)
				return Entry[string]{Value: v}, err
			})
			return err
		},
		"Lookup":     func(ctx context.Context) error { _, err := c.Lookup(ctx, "k"); return err },
		"Set":        func(ctx context.Context) error { return c.Set(ctx, "k", "v") },
		"SetEntry":   func(ctx context.Context) error { return c.SetEntry(ctx, "k", Entry[string]{Value: "v"}) },
		"Invalidate": func(ctx context.Context) error { return c.Invalidate(ctx, "k", "k2") },
		"Expire":     func(ctx context.Context) error { return c.Expire(ctx, "k", "k2") },
	}
}

// clients are settings that change what the client does while nobody answers.
var clients = map[string]func(*redis.Options){
	"default":          func(*redis.Options) {},
	"no time-outs":     func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 },
	"no retries":       func(o *redis.Options) { o.MaxRetries = -1 },
	"obeys contexts":   func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	"RESP2":            func(o *redis.Options) { o.Protocol = 2 },
	"quick time-outs":  func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = 20*time.Millisecond, 20*time.Millisecond },
	"many quick tries": func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 20*time.Millisecond, 100 },
}

// I8: every call returns by its deadline, whatever the client's options are.
func TestDeadlinesDuringAnOutage(t *testing.T) {
	const deadline = 200 * time.Millisecond
	for name, change := range clients {
		t.Run(name, func(t *testing.T) {
			eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
				for _, warm := range []bool{true, false} {
					c := open[string](t, p.Client(t, change))
					if warm {
						if err := c.Set(t.Context(), "k", "v"); err != nil {
							t.Fatal(err)
						}
					}
					begin()
					for op, call := range everyCall(c) {
						for range 3 {
							ctx, cancel := context.WithTimeout(t.Context(), deadline)
							asked := time.Now()
							err := call(ctx)
							if took := time.Since(asked); took > deadline+time.Millisecond {
								t.Errorf("%s took %v", op, took)
							}
							if isRead := op == "Get" || op == "Fetch"; err != nil && isRead && !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("%s: got %v", op, err)
							} else if !isRead && !errors.Is(err, ErrRedis) && !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("%s: got %v", op, err)
							}
							cancel()
						}
					}
					end()
					p.Cut() // whoever waits without a time-out
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// I8, on a real server and by the real clock.
func TestDeadlineOnAFrozenServer(t *testing.T) {
	s := redistest.NewReal(t)
	c := open[string](t, s.Client(t))
	if err := c.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Freeze(t)
	defer s.Thaw(t)
	for op, call := range everyCall(c) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		asked := time.Now()
		_ = call(ctx)
		took := time.Since(asked)
		t.Logf("%s: %v", op, took)
		if took > 400*time.Millisecond { // 250 ms on a machine that is not busy
			t.Errorf("%s took %v", op, took)
		}
		cancel()
	}
}

func TestCallsThatReturnErrRedis(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		c := open[string](t, p.Client(t), func(o *Options) { o.WhenRedisFails = ReturnError })
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		begin()
		for op, call := range everyCall(c) {
			asked := time.Now()
			if err := call(t.Context()); !errors.Is(err, ErrRedis) {
				t.Errorf("%s: got %v", op, err)
			}
			if took := time.Since(asked); took > testTimeout {
				t.Errorf("%s took %v", op, took)
			}
			time.Sleep(rand.N(2 * testTimeout))
		}
		want(t, "loads", c.Stats().Loads, 0)
		end()
	})
}
