package stockade

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// While nothing is heard of changes, entries are served for a second without asking Redis; and what was missed is made
// up for when the subscription comes up again.
func TestALostSubscription(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c, p := hearingThrough(t, s, s.Client(t))
		other := open[string](t, s.Client(t))
		set(t, other, "k", "old")
		synctest.Wait() // until that is heard
		wantEntry(t, "read", c, "k", "old", Hit)
		time.Sleep(time.Minute)
		wantEntry(t, "heard for a minute", c, "k", "old", Local)
		p.Refuse(true)
		p.Cut()
		synctest.Wait()
		wantEntry(t, "lost", c, "k", "old", Hit)
		for range 3 {
			set(t, other, "k", "old")
			time.Sleep(deafTTL)
			wantEntry(t, "a second later", c, "k", "old", Hit)
			set(t, other, "k", "new")
			time.Sleep(deafTTL - time.Nanosecond)
			wantEntry(t, "within a second", c, "k", "old", Local)
			time.Sleep(time.Nanosecond)
			wantEntry(t, "after a second", c, "k", "new", Hit)
		}

		// It comes up again: an entry that is younger than a second, and outdated, is dropped.
		set(t, other, "k", "newest")
		wantEntry(t, "outdated", c, "k", "new", Local)
		p.Refuse(false)
		for range 1000 {
			if synctest.Wait(); c.view.local.live.Load() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		wantEntry(t, "heard again", c, "k", "newest", Hit)
		time.Sleep(time.Minute)
		wantEntry(t, "heard for a minute", c, "k", "newest", Local)
	})
}

// What was asked for before the subscription came up is not kept: a change may have come between them.
func TestAFillThatASubscriptionOvertakes(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		rdb := s.Client(t)
		c, p := hearingThrough(t, s, rdb)
		other := open[string](t, s.Client(t))
		set(t, other, "k", "old")
		p.Refuse(true)
		p.Cut()
		synctest.Wait()
		reached, release := make(chan struct{}), make(chan struct{})
		held := false
		rdb.AddHook(around{after: func(cmds []redis.Cmder, _ error) {
			if cmds[0].Name() == "get" && !held {
				held = true
				close(reached)
				<-release
			}
		}})
		done := make(chan struct{})
		go func() { defer close(done); wantEntry(t, "read", c, "k", "old", Hit) }()
		<-reached
		set(t, other, "k", "new")
		p.Refuse(false)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		want(t, "changes are heard of", c.view.local.live.Load(), true)
		close(release)
		<-done
		wantEntry(t, "then", c, "k", "new", Hit)
	})
}

// A connection that dies silently is noticed within 6 seconds.
func TestASubscriptionThatDiesSilently(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c, p := hearingThrough(t, s, s.Client(t))
		other := open[string](t, s.Client(t))
		set(t, other, "k", "old")
		synctest.Wait() // until that is heard
		wantEntry(t, "read", c, "k", "old", Hit)
		p.Swallow(true)
		set(t, other, "k", "new")
		time.Sleep(6*time.Second + time.Millisecond)
		wantEntry(t, "then", c, "k", "new", Hit)
	})
}

// A client that may not subscribe has a tier of a second.
func TestALocalTierWithoutASubscription(t *testing.T) {
	s := redistest.NewReal(t)
	admin := s.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	c := open[string](t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "pw" }), withLocal)
	set(t, c, "k", "v")
	redistest.Eventually(t, 10*time.Second, "the entry is in the tier", func() bool {
		e, err := c.Lookup(t.Context(), "k")
		return err == nil && e.Source == Local
	})
	if err := admin.Del(t.Context(), c.view.names("k").Value).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "the entry is gone", func() bool {
		_, err := c.Lookup(t.Context(), "k")
		return errors.Is(err, ErrMiss)
	})
}

// When Redis fails, the tier serves what it has for as long as the entry lives, fresh or stale, whatever the policy,
// and the source is not asked. What this process has invalidated meanwhile it does not serve.
func TestTheLocalTierInAnOutage(t *testing.T) {
	for _, policy := range []RedisFailure{LoadLocally, ReturnError} {
		t.Run(fmt.Sprint("policy ", policy), func(t *testing.T) {
			eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
				c := hearing[string](t, p.Client(t), func(o *Options) {
					o.WhenRedisFails, o.TTL, o.StaleFor, o.AbsentTTL = policy, time.Minute, time.Hour, 10*time.Minute
				})
				o := slowly("loaded")
				begun := time.Now()
				for _, key := range []string{"k", "changed"} {
					set(t, c, key, "v")
					wantEntry(t, "read", c, key, "v", Hit)
				}
				if _, err := c.Get(t.Context(), "absent", fails(0, ErrNotFound).Load); !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
				begin()
				time.Sleep(10 * time.Second) // the subscription is known to be lost, or has got a ping too late
				_, _ = c.Lookup(t.Context(), "changed")
				wantEntry(t, "while it is fresh", c, "k", "v", Local)
				values, err := c.GetMany(t.Context(), []string{"k"}, func(context.Context, []string) (map[string]string, error) { return nil, errSource })
				if values["k"] != "v" || err != nil {
					t.Errorf("batch: %v, %v", values, err)
				}
				if _, err := c.Get(t.Context(), "absent", o.Load); !errors.Is(err, ErrNotFound) {
					t.Errorf("absent: %v", err)
				}
				time.Sleep(2 * time.Minute)
				for range 3 {
					wantEntry(t, "while it is stale", c, "k", "v", Stale)
					time.Sleep(time.Second)
				}
				wantLoads(t, o, 0)

				if err := c.Invalidate(t.Context(), "changed"); !errors.Is(err, ErrRedis) {
					t.Errorf("invalidate: %v", err)
				}
				last := func(key string) {
					t.Helper()
					v, err := c.Get(t.Context(), key, o.Load)
					if policy == LoadLocally && (v != "loaded" || err != nil) || policy == ReturnError && !errors.Is(err, ErrRedis) {
						t.Errorf("%s: got %q, %v", key, v, err)
					}
				}
				last("changed")
				time.Sleep(time.Until(begun.Add(time.Hour + time.Minute - time.Second)))
				wantEntry(t, "at its end", c, "k", "v", Stale)
				time.Sleep(2 * time.Second)
				last("k")
				end()
			})
		})
	}
}

// After an outage the tier asks Redis for what it has, and hears again.
func TestTheLocalTierAfterAnOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		c := hearing[string](t, p.Client(t))
		other := open[string](t, s.Client(t))
		set(t, other, "k", "old")
		synctest.Wait() // until that is heard
		wantEntry(t, "read", c, "k", "old", Hit)
		begin()
		set(t, other, "k", "new")
		time.Sleep(20 * time.Second)
		end()
		for range 200 { // the breaker has to learn that it is over, and the bus, which pauses for 15 s at most, has to come up
			_, _ = c.Lookup(t.Context(), "j")
			time.Sleep(100 * time.Millisecond)
		}
		wantEntry(t, "afterwards", c, "k", "new", Hit)
		time.Sleep(time.Minute)
		wantEntry(t, "a minute later", c, "k", "new", Local)
	})
}
