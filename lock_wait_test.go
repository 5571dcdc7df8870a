package stockade_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestWaitersDoNotSpin: whatever happens to all that waiters wait for at once, they do not ask without pause (I12).
func TestWaitersDoNotSpin(t *testing.T) {
	const waiters, lasts = 40, 3 * time.Second
	again := func(every time.Duration, what func()) {
		for range lasts / every {
			what()
			time.Sleep(every)
		}
	}
	for name, happens := range map[string]func(s *redistest.FakeServer, p *redistest.Proxy){
		"nothing":         func(*redistest.FakeServer, *redistest.Proxy) { time.Sleep(lasts) },
		"new connections": func(_ *redistest.FakeServer, p *redistest.Proxy) { again(300*time.Millisecond, p.Cut) },
		"no server": func(_ *redistest.FakeServer, p *redistest.Proxy) {
			p.Refuse(true)
			p.Cut()
			time.Sleep(lasts)
			p.Refuse(false)
		},
		"passing refusals": func(s *redistest.FakeServer, _ *redistest.Proxy) {
			s.Mini.SetError("LOADING Redis is loading the dataset in memory")
			time.Sleep(lasts)
			s.Mini.SetError("")
		},
		"messages": func(s *redistest.FakeServer, _ *redistest.Proxy) {
			again(300*time.Millisecond, func() {
				for i := range waiters {
					for range 10 {
						s.Mini.Publish("ns:unlock", "w"+lockKey(fmt.Sprint(i)))
					}
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *redistest.FakeServer) {
				t.Cleanup(func() { time.Sleep(2 * time.Second) }) // the client's attempts to connect end before the bubble
				p := redistest.NewProxy(t, s)
				rdb, log := logged(p.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })) // whose failures come at once
				l := newLocker(t, rdb, stockade.LockOptions{})
				unlock(t, tryLock(t, l)) // the server knows the scripts
				for i := range waiters {
					_ = s.Mini.Set(lockKey(fmt.Sprint(i)), strings.Repeat("x", 32))
					s.Mini.SetTTL(lockKey(fmt.Sprint(i)), time.Hour)
				}
				var callers sync.WaitGroup
				for i := range waiters {
					callers.Go(func() {
						k, err := l.Lock(t.Context(), fmt.Sprint(i))
						if err != nil {
							t.Errorf("Lock: %v", err)
							return
						}
						unlock(t, k)
					})
				}
				time.Sleep(2 * time.Second) // the polls have become slow
				before := log.count(isTake)
				happens(s, p)
				each := float64(log.count(isTake)-before) / waiters / lasts.Seconds()
				t.Logf("%.1f questions of each waiter in a second", each)
				if each > 15 {
					t.Errorf("%.1f questions of each waiter in a second", each)
				}
				s.Mini.FlushAll()
				callers.Wait()
			})
		})
	}
}
