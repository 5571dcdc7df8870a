package stockade

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// What a read has found to be gone, or not to be read by this process, is not served when Redis fails: a process that
// hears nothing learns only so that it was changed.
func TestWhatIsGoneIsNotServedInAnOutage(t *testing.T) {
	other := func(t *testing.T, s *redistest.FakeServer) *Cache[string] { return open[string](t, s.Client(t)) }
	for name, change := range map[string]func(t *testing.T, s *redistest.FakeServer, name string){
		"invalidated": func(t *testing.T, s *redistest.FakeServer, _ string) {
			if err := other(t, s).Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		},
		"written by a newer version": func(t *testing.T, s *redistest.FakeServer, name string) {
			s.Client(t).Set(t.Context(), name, "\x99\x02", time.Hour)
		},
		"undecodable": func(t *testing.T, s *redistest.FakeServer, name string) {
			s.Client(t).Set(t.Context(), name, "?", time.Hour)
		},
	} {
		for how, read := range map[string]func(c *Cache[string]){
			"lookup": func(c *Cache[string]) { _, _ = c.Lookup(context.Background(), "k") },
			"get":    func(c *Cache[string]) { _, _ = c.Get(context.Background(), "k", fails(0, errSource).Load) },
			"batch": func(c *Cache[string]) {
				_, _ = c.GetMany(context.Background(), []string{"k", "l"}, func(context.Context, []string) (map[string]string, error) { return nil, errSource })
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
					rdb := s.Client(t)
					c, p := hearingThrough(t, s, rdb, func(o *Options) { o.StaleFor, o.WhenRedisFails = time.Hour, ReturnError })
					set(t, c, "k", "old")
					wantEntry(t, "read", c, "k", "old", Hit)
					p.Refuse(true)
					p.Cut()
					synctest.Wait()
					time.Sleep(deafTTL)
					change(t, s, c.view.names("k").Value)
					read(c)
					faults := redistest.NewFaults(t)
					rdb.AddHook(faults)
					faults.Refuse(1000, func([]string) bool { return true }, refusal("ERR out of order"))
					if v, err := c.Get(t.Context(), "k", returns("loaded").Load); err == nil {
						t.Errorf("got %q, which is gone", v)
					}
					faults.Clear()
				})
			})
		}
	}
}

// So too when Redis answers, but gives no lease.
func TestWhatIsGoneIsNotServedWithoutALease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb := s.Client(t)
		c, p := hearingThrough(t, s, rdb, func(o *Options) { o.StaleFor = time.Hour })
		set(t, c, "k", "old")
		wantEntry(t, "read", c, "k", "old", Hit)
		p.Refuse(true)
		p.Cut()
		synctest.Wait()
		time.Sleep(deafTTL)
		if err := open[string](t, s.Client(t)).Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		faults.Refuse(1000, runs("acquire"), refusal("OOM command not allowed when used memory > 'maxmemory'."))
		if v, err := c.Get(t.Context(), "k", returns("new").Load); v != "new" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		faults.Clear()
	})
}
