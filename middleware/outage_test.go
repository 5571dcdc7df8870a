package middleware

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Without Redis the requests of one process still share runs, nobody gets an error, and it works again by itself.
func TestWithoutRedis(t *testing.T) {
	for name, stop := range map[string]func(*redistest.RealServer, testing.TB) func(){
		"frozen": func(s *redistest.RealServer, t testing.TB) func() { s.Freeze(t); return func() { s.Thaw(t) } },
		"dead":   func(s *redistest.RealServer, t testing.TB) func() { s.Kill(); return func() { s.Restart(t) } },
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.NewReal(t)
			d := &versioned{fields: map[string]string{"Vary": "X-V"}}
			release := make(chan struct{})
			d.during = func() { <-release }
			site := newSite(t, s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), Route{}, d.ServeHTTP)
			start := stop(s, t)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if w := site.wantBody("v0 for ", "/p"); w.Code != http.StatusOK {
						t.Errorf("got %d", w.Code)
					}
				})
			}
			redistest.Eventually(t, 10*time.Second, "a run", func() bool { return site.runs.Load() > 0 })
			redistest.Eventually(t, 10*time.Second, "all wait", func() bool { return site.mw.Stats().Misses >= 50 })
			close(release)
			wg.Wait()
			if runs := site.runs.Load(); runs > 2 { // who came after a run began does not have its outcome
				t.Errorf("%d runs", runs)
			}
			start()
			redistest.Eventually(t, 10*time.Second, "it works again", func() bool {
				return strings.Contains(site.do("GET", "/p").Header().Get("Cache-Status"), "hit")
			})
		})
	}
}
