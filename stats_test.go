package stockade

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A lease that is gone counts once, whoever finds out first: a renewal, the commit, or both. One that a loader gives back
// is not lost.
func TestLostLeases(t *testing.T) {
	for name, many := range map[string]bool{"one": false, "batch": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				admin := s.Client(t)
				c := open[string](t, s.Client(t))
				// read loads for a while; the lease goes after a part of it.
				read := func(key string, takes, goneAfter time.Duration, failure error) {
					t.Helper()
					done := make(chan error, 1)
					go func() {
						var err error
						if many {
							o := table{before: func(context.Context, []string) error { time.Sleep(takes); return failure }}
							_, err = c.GetMany(t.Context(), []string{key, key + "'"}, o.load)
						} else {
							_, err = c.Get(t.Context(), key, fails(takes, failure).Load)
						}
						done <- err
					}()
					if goneAfter > 0 {
						time.Sleep(goneAfter)
						if n := admin.Del(t.Context(), c.view.names(key).Lease).Val(); n != 1 {
							t.Error("there was no lease")
						}
					}
					if err := <-done; (err != nil) != (failure != nil) {
						t.Errorf("%s: %v", key, err)
					}
				}
				wants := func(what string, lost, rejected uint64) {
					t.Helper()
					want(t, what+": lost leases", c.Stats().LostLeases, lost)
					want(t, what+": rejected", c.Stats().Rejected, rejected)
				}
				read("kept", 2*defaultLeaseTTL, 0, nil)
				wants("kept", 0, 0)
				read("short", testLoad, testLoad/2, nil)
				wants("found by the commit", 1, 1)
				read("long", 2*defaultLeaseTTL, testLoad, nil)
				wants("found by a renewal, and by the commit", 2, 2)
				read("failing", 2*defaultLeaseTTL, testLoad, errSource)
				wants("found by a renewal of a load that failed", 3, 2)
				read("given back", testLoad, 0, errSource)
				wants("given back", 3, 2)
			})
		})
	}
}

// What could not be told to Redis is counted by key, also while nobody asks it; what was not Redis's fault is not.
func TestChangeErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		patient(t)
		p := redistest.NewProxy(t, s)
		c := open[string](t, p.Client(t))
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		if err := c.SetEntry(t.Context(), "k", Entry[string]{TTL: -1}); err == nil || errors.Is(err, ErrRedis) {
			t.Errorf("a wrong lifetime: %v", err)
		}
		want(t, "after changes that succeed, and wrong ones", c.Stats().ChangeErrors, 0)
		odd := open[chan int](t, p.Client(t))
		if err := odd.Set(t.Context(), "k", make(chan int)); err == nil || errors.Is(err, ErrRedis) {
			t.Errorf("a value that cannot be written: %v", err)
		}
		want(t, "after that", odd.Stats().ChangeErrors, 0)
		want(t, "open nodes", c.Stats().OpenNodes, 0)
		time.Sleep(time.Second) // the last success is over
		p.Freeze()
		wants := func(what string, err error, errs uint64) {
			t.Helper()
			if !errors.Is(err, ErrRedis) {
				t.Errorf("%s: %v", what, err)
			}
			want(t, what, c.Stats().ChangeErrors, errs)
		}
		wants("invalidate", c.Invalidate(t.Context(), "k"), 1)
		want(t, "open nodes", c.Stats().OpenNodes, 1)
		before := c.Stats().RedisErrors
		wants("several, unasked", c.Invalidate(t.Context(), "k", "l", "m"), 4)
		wants("expire, unasked", c.Expire(t.Context(), "k"), 5)
		wants("set, unasked", c.Set(t.Context(), "k", "v"), 6)
		want(t, "failures of Redis meanwhile", c.Stats().RedisErrors, before)

		// Whom nobody needs is not missed, however dead it is.
		time.Sleep(59 * time.Second)
		want(t, "open nodes that were needed lately", c.Stats().OpenNodes, 1)
		time.Sleep(2 * time.Second)
		want(t, "open nodes that nobody needs", c.Stats().OpenNodes, 0)
		wants("needed again", c.Invalidate(t.Context(), "k"), 7)
		want(t, "open nodes that are needed again", c.Stats().OpenNodes, 1)
		p.Thaw()
		time.Sleep(time.Second)
		_ = c.Invalidate(t.Context(), "k") // probes
		time.Sleep(time.Second)
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		want(t, "open nodes that answer again", c.Stats().OpenNodes, 0)
	})
}
