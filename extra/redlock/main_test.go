package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/redlock"
	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client tells of every connection that a test refuses
	redistest.Main(m)
}

// fleet are the servers of one test.
type fleet []redistest.Server

// fakes are servers for a bubble.
func fakes(t testing.TB, n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = redistest.Fake(t)
	}
	return f
}

// reals are servers of the test's own.
func reals(t testing.TB, n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = redistest.NewReal(t)
	}
	return f
}

func (f fleet) real(i int) *redistest.RealServer { return f[i].(*redistest.RealServer) }
func (f fleet) fake(i int) *redistest.FakeServer { return f[i].(*redistest.FakeServer) }

// bubble runs a test on five fakes.
func bubble(t *testing.T, test func(*testing.T, fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, fakes(t, 5)) })
}

// proxied puts a proxy before each server.
func proxied(t testing.TB, f fleet) []*redistest.Proxy {
	proxies := make([]*redistest.Proxy, len(f))
	for i, s := range f {
		proxies[i] = redistest.NewProxy(t, s)
	}
	return proxies
}

// maker is a server or the proxy before one.
type maker interface {
	Client(t testing.TB, change ...func(*redis.Options)) *redis.Client
}

// clients returns a client of each server, as one process has them. Fakes get addresses that differ.
func clients[M maker](t testing.TB, servers []M, change ...func(*redis.Options)) []redis.UniversalClient {
	var list []redis.UniversalClient
	for i, s := range servers {
		list = append(list, s.Client(t, append(change, func(o *redis.Options) {
			if o.Addr == "127.0.0.1:0" {
				o.Addr = fmt.Sprintf("127.0.0.1:%d", i+1)
			}
		})...))
	}
	return list
}

// newLocker returns the Locker of one process, closed with the test.
func newLocker(t testing.TB, list []redis.UniversalClient, opts redlock.Options) *redlock.Locker {
	t.Helper()
	if opts.Prefix == "" {
		opts.Prefix = "ns"
	}
	l, err := redlock.New(list, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

const lockKey = "ns:R:m:{name}"

// holding returns which servers have the lock of a name's key, asked directly.
func holding(ctx context.Context, admins []redis.UniversalClient, key string) (has []int) {
	for i, admin := range admins {
		if admin.Exists(ctx, key).Val() == 1 {
			has = append(has, i)
		}
	}
	return has
}

func tryLock(t testing.TB, l *redlock.Locker) *redlock.Lock {
	t.Helper()
	k, err := l.TryLock(t.Context(), "name")
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return k
}

func unlock(t testing.TB, k *redlock.Lock) {
	t.Helper()
	if err := k.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// events gathers what an Observer is told.
type events struct {
	mu    sync.Mutex
	locks []stockade.LockEvent
	waits []stockade.WaitEvent
	redis []stockade.RedisEvent
}

func (e *events) observer() stockade.Observer {
	return stockade.Observer{
		Lock:  func(ev stockade.LockEvent) { e.mu.Lock(); defer e.mu.Unlock(); e.locks = append(e.locks, ev) },
		Wait:  func(ev stockade.WaitEvent) { e.mu.Lock(); defer e.mu.Unlock(); e.waits = append(e.waits, ev) },
		Redis: func(ev stockade.RedisEvent) { e.mu.Lock(); defer e.mu.Unlock(); e.redis = append(e.redis, ev) },
	}
}

// failed returns how many failures of each server the Observer was told, by address.
func (e *events) failed() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[string]int{}
	for _, ev := range e.redis {
		if ev.Err != nil {
			counts[ev.Node]++
		}
	}
	return counts
}

// told returns the events of locks so far.
func (e *events) told() []stockade.LockEvent {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.locks)
}
