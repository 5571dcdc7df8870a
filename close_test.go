package stockade

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I10: after Close nothing of a cache is left: no goroutine, no lease; callers got ErrClosed at once.
func TestCloseDuringLoadsAndWaits(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		opts := func(o *Options) { o.TTL, o.StaleFor = 50*time.Millisecond, time.Hour }
		rdb := s.Client(t)
		c, other := open[string](t, rdb, opts), open[string](t, s.Client(t))
		if err := c.Set(t.Context(), "stale", "v"); err != nil {
			t.Fatal(err)
		}
		crash(t, s, other, "held", time.Minute) // elsewhere
		redistest.Eventually(t, 5*time.Second, "the value is stale", func() bool {
			e, err := c.Lookup(t.Context(), "stale")
			return err == nil && e.Source == Stale
		})

		obedient := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, ErrClosed) {
				t.Errorf("a loader was cancelled by %v", cause)
			}
			return "", ctx.Err()
		}
		var wg sync.WaitGroup
		for i := range 50 {
			for _, key := range []string{"load", "held", fmt.Sprint("load ", i)} {
				wg.Go(func() {
					if v, err := c.Get(t.Context(), key, obedient); !errors.Is(err, ErrClosed) {
						t.Errorf("%s: got %q, %v", key, v, err)
					}
				})
			}
		}
		if v, err := c.Get(t.Context(), "stale", obedient); v != "v" || err != nil { // begins a refresh
			t.Errorf("got %q, %v", v, err)
		}
		redistest.Eventually(t, 5*time.Second, "all load or wait", func() bool {
			stats := c.Stats()
			return stats.Loading == 52 && stats.Waits == 1 && stats.Misses == 150
		})
		closing := time.Now()
		view := c.With(Policy{TTL: time.Second})
		if err := view.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if took := time.Since(closing); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		if left := ours(); left != "" {
			t.Errorf("left:\n%s", left)
		}
		want(t, "leases", leases(t, s), 1) // the one held elsewhere
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, view := range []*Cache[string]{c, view, c.With(Policy{})} {
			for op, call := range everyCall(view) {
				if err := call(t.Context()); err != ErrClosed { //nolint:errorlint // nothing else is known
					t.Errorf("%s: got %v", op, err)
				}
			}
		}
		c.Stats()
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Errorf("the client: %v", err) // it is not ours to close
		}
	})
}

// ours returns the goroutines that run code of the cache, besides the tests'.
func ours() string {
	buf := make([]byte, 1<<20)
	var left []string
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "/stockade.(*") || strings.Contains(g, "internal/bus.") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}

// I10, while nobody answers: callers get ErrClosed at once, and Close returns when the client does.
func TestCloseDuringAnOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		c, other := open[string](t, p.Client(t)), open[string](t, s.Client(t))
		crash(t, s, other, "held", time.Minute)
		var wg sync.WaitGroup
		var closing time.Time
		get := func(key string, load Loader[string]) {
			wg.Go(func() {
				_, err := c.Get(t.Context(), key, load)
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%s: got %v", key, err)
				}
				if took := time.Since(closing); took > 2*testTimeout { // a renewal, and the release
					t.Errorf("%s: returned %v after Close", key, took)
				}
			})
		}
		obedient := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		for i := range 10 {
			get("load", obedient)
			get("held", obedient)
			get(fmt.Sprint(i), obedient)
		}
		time.Sleep(time.Second)
		begin()
		time.Sleep(time.Millisecond)
		for i := range 10 {
			get(fmt.Sprint("a trip ", i), obedient)
		}
		time.Sleep(testTimeout / 2)
		closing = time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(closing); took > 5*time.Second { // the client's own time-outs, without its repetitions
			t.Errorf("Close took %v", took)
		}
		wg.Wait()
		if left := leftOf(c); left != "" {
			t.Error(left)
		}
		end()
	})
}

// leftOf says what a closed cache still has.
func leftOf(c *Cache[string]) string {
	if stats := c.Stats(); stats.Flights != 0 || stats.Loading != 0 {
		return fmt.Sprintf("%d flights, %d loads", stats.Flights, stats.Loading)
	}
	return ""
}

// Close on a server that is frozen for real, with a client whose time-outs are short.
func TestCloseOnAFrozenServer(t *testing.T) {
	s := redistest.NewReal(t)
	c := open[string](t, s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 500*time.Millisecond, -1 }))
	began := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Get(t.Context(), "load", func(ctx context.Context) (string, error) { close(began); <-ctx.Done(); return "", ctx.Err() })
		if !errors.Is(err, ErrClosed) {
			t.Errorf("load: got %v", err)
		}
	})
	<-began
	s.Freeze(t)
	for i := range 10 {
		wg.Go(func() {
			if _, err := c.Get(t.Context(), fmt.Sprint(i), fails(time.Minute, nil).Load); err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("trip: got %v", err)
			}
		})
	}
	redistest.Eventually(t, 5*time.Second, "all wait for a trip", func() bool {
		n := c.view.nodes.single
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.places) == 10
	})
	closing := time.Now()
	returned := make(chan struct{})
	go func() { _ = c.Close(); close(returned) }()
	wg.Wait()
	if took := time.Since(closing); took > 2*time.Second {
		t.Errorf("callers returned %v after Close", took)
	}
	<-returned
	if took := time.Since(closing); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	s.Thaw(t)
}

// I10: Close while calls are made again and again.
func TestCloseAmongCalls(t *testing.T) {
	s := redistest.Real(t)
	for range 20 {
		c := open[string](t, s.Client(t), func(o *Options) { o.RedisTimeout, o.LeaseTTL = 2*time.Second, 8*time.Second }) // on a busy machine too
		var wg sync.WaitGroup
		var made atomic.Int64
		amid := make(chan struct{})
		for op, call := range everyCall(c) {
			for range 5 {
				wg.Go(func() {
					for {
						err := call(t.Context())
						if made.Add(1) == 200 {
							close(amid)
						}
						switch {
						case err == nil, errors.Is(err, ErrMiss):
						case errors.Is(err, ErrClosed):
							return
						default:
							t.Errorf("%s: got %v", op, err)
						}
					}
				})
			}
		}
		for range 3 {
			wg.Go(func() { <-amid; _ = c.Close() })
		}
		wg.Wait()
		want(t, "leases", leases(t, s), 0)
	}
}
