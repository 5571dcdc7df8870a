package stockade

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client tells of every connection that a test refuses
	if addr := os.Getenv(processVariable); addr != "" {
		serveProcess(addr)
		return
	}
	redistest.Main(m)
}

// open returns a cache that is closed when the test ends.
func open[T any](t testing.TB, rdb redis.UniversalClient, change ...func(*Options)) *Cache[T] {
	t.Helper()
	opts := Options{Prefix: "test", Jitter: -1, EarlyRefresh: -1}
	for _, f := range change {
		f(&opts)
	}
	c, err := New[T](rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// origin is what a cache stands before: it counts its loads.
type origin[T any] struct {
	loads atomic.Int64
	load  func(ctx context.Context) (T, error)
}

func (o *origin[T]) Load(ctx context.Context) (T, error) {
	o.loads.Add(1)
	return o.load(ctx)
}

// returns is an origin of one value.
func returns[T any](v T) *origin[T] {
	return &origin[T]{load: func(context.Context) (T, error) { return v, nil }}
}

func wantLoads[T any](t testing.TB, o *origin[T], want int64) {
	t.Helper()
	if got := o.loads.Load(); got != want {
		t.Errorf("got %d loads, want %d", got, want)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// around is a hook that does something before and after what a client sends. Either may be nil.
type around struct {
	before, after func(cmds []redis.Cmder, err error)
}

func (h around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.do([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.do(cmds, func() error { return next(ctx, cmds) })
	}
}

func (h around) do(cmds []redis.Cmder, send func() error) error {
	if h.before != nil {
		h.before(cmds, nil)
	}
	err := send()
	if h.after != nil {
		h.after(cmds, err)
	}
	return err
}
