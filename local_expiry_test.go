package stockade

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Rolling expiry: what expires all the time is read all the time. Few reads ask Redis, and one process loads.
func TestLocalTiersUnderRollingExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		const processes, readers, keys, ttl, lasts = 4, 50, 100, time.Second, 5 * time.Second
		counts := redistest.NewFaults(t)
		var caches []*Cache[string]
		for range processes {
			rdb := s.Client(t)
			rdb.AddHook(counts)
			caches = append(caches, open[string](t, rdb, withLocal, func(o *Options) { o.TTL, o.Jitter, o.EarlyRefresh = ttl, 0.1, 1 }))
		}
		var reads atomic.Int64
		o := slowly("v")
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range processes * readers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				zipf := rand.NewZipf(r, 1.1, 1, keys-1)
				for time.Since(begun) < lasts {
					time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
					if v, err := caches[i%processes].Get(t.Context(), fmt.Sprint(zipf.Uint64()), o.Load); v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
					reads.Add(1)
				}
			})
		}
		wg.Wait()
		if perRead := float64(counts.Count()) / float64(reads.Load()); perRead > 0.2 {
			t.Errorf("%.3f commands a read", perRead)
		} else {
			t.Logf("%.3f commands a read, %d reads, %d loads", perRead, reads.Load(), o.loads.Load())
		}
		if n := o.loads.Load(); n > 2*keys*int64(lasts/ttl) {
			t.Errorf("%d loads of %d keys in %v", n, keys, lasts)
		}
	})
}
