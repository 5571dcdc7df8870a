package stockade_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestFencesUnderLostReplies holds I2 while the replies to takes and unlocks are lost, some several times in a row, so
// that clients repeat them: no fence is handed out twice, and each is larger than those before it.
func TestFencesUnderLostReplies(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		const lockers, turns = 4, 25
		var fences []int64 // guarded by the lock
		var callers sync.WaitGroup
		for i := range lockers {
			faults, proxy := redistest.NewFaults(t), redistest.NewProxy(t, s)
			rdb := proxy.Client(t, func(o *redis.Options) { o.MinRetryBackoff, o.MaxRetryBackoff = -1, -1 })
			rdb.AddHook(faults)
			l := newLocker(t, rdb, stockade.LockOptions{})
			random := rand.New(rand.NewPCG(1, uint64(i)))
			lose := func(match redistest.Match) {
				switch random.IntN(4) {
				case 0:
					proxy.DropReplies(1+random.IntN(6), match)
				case 1:
					faults.LoseReply(1, match)
				}
			}
			callers.Go(func() {
				for range turns {
					lose(isTake)
					k, err := l.Lock(t.Context(), "name")
					if err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					fences = append(fences, k.Fence())
					lose(isUnlock)
					// Eight releases later a repeated one does not know what became of the first.
					if err := k.Unlock(t.Context()); err != nil && !errors.Is(err, stockade.ErrRedis) {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
		callers.Wait()
		if !slices.IsSorted(fences) || len(slices.Compact(slices.Clone(fences))) != lockers*turns {
			t.Errorf("the fences do not grow strictly: %v", fences)
		}
	})
}

// TestFencesGrow holds I2 for fences.
func TestFencesGrow(t *testing.T) {
	var last int64
	next := func(t *testing.T, l *stockade.Locker, after string) {
		t.Helper()
		k, err := l.Lock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		if k.Fence() <= last {
			t.Errorf("after %s: fence %d after %d", after, k.Fence(), last)
		}
		last = k.Fence()
		unlock(t, k)
	}
	t.Run("time stands still", func(t *testing.T) {
		last = 0
		bubble(t, func(t *testing.T, s *redistest.FakeServer) {
			l := newLocker(t, s.Client(t), stockade.LockOptions{})
			for range 100 {
				next(t, l, "nothing")
			}
			s.Mini.SetTime(time.Now().Add(-time.Hour))
			next(t, l, "the clock was set back")
		})
	})
	t.Run("real", func(t *testing.T) {
		last = 0
		s := redistest.NewReal(t)
		rdb := s.Client(t)
		l := newLocker(t, rdb, stockade.LockOptions{})
		next(t, l, "nothing")
		next(t, l, "an unlock")
		rdb.FlushAll(t.Context())
		next(t, l, "a flush")
		rdb.Del(t.Context(), "ns:K:n:{name}")
		next(t, l, "an eviction of the fences")
		s.Restart(t)
		next(t, l, "a restart")
		rdb.ScriptFlush(t.Context())
		next(t, l, "a flush of the scripts")
	})
}
