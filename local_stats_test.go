package stockade

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// What the tier serves is counted as what it is, by itself and when Redis fails.
func TestLocalStats(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb := s.Client(t)
		c := hearing[string](t, rdb, func(o *Options) { o.TTL, o.StaleFor, o.AbsentTTL = time.Minute, time.Hour, time.Minute })
		before := c.Stats()
		counted := func(what string, local, stale, absent uint64) {
			t.Helper()
			now := c.Stats()
			if now.Local-before.Local != local || now.Stale-before.Stale != stale || now.Absent-before.Absent != absent || now.Hits != before.Hits {
				t.Errorf("%s: counted %+v, after %+v", what, now, before)
			}
			before = now
		}
		get := func(key string) (Entry[string], error) {
			return c.Fetch(t.Context(), key, func(context.Context, *Entry[string]) (Entry[string], error) {
				if key == "absent" {
					return Entry[string]{}, ErrNotFound
				}
				return Entry[string]{Value: "v", ETag: "e"}, nil
			})
		}
		for _, key := range []string{"k", "absent"} {
			_, _ = get(key)
		}
		counted("loads", 0, 0, 0)
		time.Sleep(10 * time.Second)
		e, err := get("k")
		wantAge(t, e, err, Local, 10*time.Second)
		want(t, "etag", e.ETag, "e")
		counted("local hit", 1, 0, 0)
		if _, err := get("absent"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		counted("absent", 0, 0, 1)

		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		faults.Refuse(1000, func([]string) bool { return true }, refusal("ERR out of order"))
		defer faults.Clear()
		c.view.local.live.Store(false) // so that Redis is asked
		e, err = get("k")
		wantAge(t, e, err, Local, 10*time.Second)
		counted("kept and fresh", 1, 0, 0)
		_, _ = get("absent")
		counted("kept and absent", 0, 0, 1)
		time.Sleep(time.Minute)
		e, err = get("k")
		wantAge(t, e, err, Stale, 70*time.Second)
		counted("kept and stale", 0, 1, 0)
		_, _ = get("loaded")
		counted("load", 0, 0, 0)
		_, _ = get("loaded")
		counted("remembered", 1, 0, 0)
		synctest.Wait()
	})
}

// A TTL of its own does not let the tier serve for longer than an entry is fresh.
func TestALocalTTLAboveFreshness(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := hearing[string](t, s.Client(t), func(o *Options) { o.TTL, o.StaleFor, o.Local.TTL = time.Minute, time.Hour, time.Hour })
		set(t, c, "k", "v")
		wantEntry(t, "first", c, "k", "v", Hit)
		time.Sleep(time.Minute - time.Millisecond)
		wantEntry(t, "fresh", c, "k", "v", Local)
		time.Sleep(2 * time.Millisecond)
		e, err := c.Fetch(t.Context(), "k", func(context.Context, *Entry[string]) (Entry[string], error) { return Entry[string]{Value: "v"}, nil })
		wantAge(t, e, err, Stale, time.Minute)
	})
}

// Local hits elect no refresh in the first half of a TTL, however eager.
func TestLocalHitsDoNotRefreshTooEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := hearing[string](t, s.Client(t), func(o *Options) { o.TTL, o.EarlyRefresh = time.Minute, 1e9 })
		_, _ = c.Get(t.Context(), "k", slowly("v").Load)
		for range 29 {
			time.Sleep(time.Second)
			wantEntry(t, "in the first half", c, "k", "v", Local)
			synctest.Wait()
		}
		o := slowly("new")
		time.Sleep(10 * time.Second)
		_, _ = c.Get(t.Context(), "k", o.Load)
		synctest.Wait()
		time.Sleep(2 * testLoad)
		wantLoads(t, o, 1)
	})
}

// What another process has refreshed comes with the answer to the request for its lease: nobody reads it again, and it is
// there when Redis fails, stale as it may be.
func TestLocalHitsTakeOverARefresh(t *testing.T) {
	for name, many := range map[string]bool{"one": false, "batch": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				eager := func(o *Options) { o.TTL, o.StaleFor, o.EarlyRefresh = time.Minute, time.Hour, 1e9 }
				c, other := hearing[string](t, s.Client(t), eager), open[string](t, s.Client(t), eager)
				_, _ = c.Get(t.Context(), "k", slowly("old").Load)
				time.Sleep(50 * time.Second)
				_, _ = other.Get(t.Context(), "k", slowly("new").Load)
				time.Sleep(2 * testLoad)
				if many {
					var o table
					_, _ = c.GetMany(t.Context(), []string{"k"}, o.load)
				} else {
					wantEntry(t, "elects", c, "k", "old", Local)
				}
				synctest.Wait()
				wantEntry(t, "taken over", c, "k", "new", Local)
				want(t, "refreshes", c.Stats().Refreshes, 0)
			})
		})
	}
}
