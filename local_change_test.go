package stockade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/bus"
	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
)

// variable is a source of one value, which changes.
type variable struct {
	atomic.Pointer[string]
	loads atomic.Int64
}

func (r *variable) write(v string) { r.Store(&v) }

func (r *variable) load(context.Context) (string, error) {
	r.loads.Add(1)
	return *r.Load(), nil
}

// changesOf are the ways to change a key. Each leaves a cache whose next Get of it has the new value.
var changesOf = map[string]func(c *Cache[string], key, value string) error{
	"invalidate": func(c *Cache[string], key, _ string) error { return c.Invalidate(context.Background(), key) },
	"invalidate many": func(c *Cache[string], key, _ string) error {
		return c.Invalidate(context.Background(), "other", key)
	},
	"set":    func(c *Cache[string], key, value string) error { return c.Set(context.Background(), key, value) },
	"expire": func(c *Cache[string], key, _ string) error { return c.Expire(context.Background(), key) },
}

// I1: a change empties the tiers of all processes within a round trip, and that of this process before it is acknowledged.
func TestChangesReachLocalTiers(t *testing.T) {
	keys := append([]string{"k", "{tag}k", "100%", "{}", "", "%7B", strings.Repeat("k", 1024)}, strings.Repeat("k", 1025))
	for name, change := range changesOf {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				a, b := hearing[string](t, s.Client(t)), hearing[string](t, s.Client(t))
				view := a.With(Policy{TTL: time.Hour})
				for _, key := range keys {
					var db variable
					db.write("v0")
					get := func(what string, c *Cache[string], value string) {
						t.Helper()
						if v, err := c.Get(t.Context(), key, db.load); v != value || err != nil {
							t.Errorf("%.10q: %s: got %q, %v, want %q", key, what, v, err, value)
						}
					}
					fill := func(value string) {
						t.Helper()
						for range 2 {
							get("a fills", a, value)
							get("b fills", b, value)
						}
					}
					fill("v0")
					for i, by := range []*Cache[string]{a, view, b} {
						db.write(fmt.Sprint("v", i+1))
						if err := change(by, key, *db.Load()); err != nil {
							t.Fatal(err)
						}
						get("who changed it", by, *db.Load())
						synctest.Wait() // messages take no time here
						get("a", a, *db.Load())
						get("b", b, *db.Load())
						fill(*db.Load())
						if e, err := a.Lookup(t.Context(), key); (e.Source == Local) != (len(key) <= maxPlainKey) || err != nil {
							t.Errorf("%.10q: from %v, %v", key, e.Source, err)
						}
					}
				}
			})
		})
	}
}

// publishes counts messages that anybody publishes on the channel of the caches, in scripts.
func publishes(t *testing.T, s redistest.Server) func() int64 {
	t.Helper()
	sub := s.Client(t).Subscribe(t.Context(), "test:wake")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	go func() {
		for {
			if _, err := sub.ReceiveMessage(context.Background()); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	return func() int64 { synctest.Wait(); return n.Load() }
}

// hearingThrough is hearing with a proxy before the subscription, and before nothing else.
func hearingThrough(t *testing.T, s redistest.Server, rdb *redis.Client, change ...func(*Options)) (*Cache[string], *redistest.Proxy) {
	t.Helper()
	p := redistest.NewProxy(t, s)
	c := open[string](t, rdb, append([]func(*Options){withLocal}, change...)...)
	c.view.bus = bus.New(p.Client(t), c.view.channel, c.view.events())
	_, _ = c.Lookup(t.Context(), "begins to listen")
	synctest.Wait()
	want(t, "changes are heard of", c.view.local.live.Load(), true)
	return c, p
}

// A process does not drop what it has filled in since its own change, and filling publishes nothing.
func TestOwnMessagesAreNotAppliedAgain(t *testing.T) {
	for name, change := range changesOf {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				c, p := hearingThrough(t, s, s.Client(t))
				other := open[string](t, s.Client(t))
				messages := publishes(t, s)
				var db variable
				db.write("old")
				_, _ = c.Get(t.Context(), "k", db.load)
				_, _ = other.Get(t.Context(), "k", db.load)
				want(t, "messages of fills", messages(), 0)
				for by, kept := range map[*Cache[string]]Source{c: Local, other: Hit} {
					p.Freeze() // the message comes when the tier has been filled again
					db.write("new")
					if err := change(by, "k", "new"); err != nil {
						t.Fatal(err)
					}
					for range 2 {
						if v, err := other.Get(t.Context(), "k", db.load); v != "new" || err != nil {
							t.Errorf("got %q, %v", v, err)
						}
					}
					_, _ = c.Get(t.Context(), "k", db.load)
					p.Thaw()
					synctest.Wait()
					wantEntry(t, "afterwards", c, "k", "new", kept)
				}
			})
		})
	}
}

// A change whose outcome is unknown may happen later, but for a Set: its message is news then.
func TestALateChangeOfItsOwnIsHeard(t *testing.T) {
	for step, late := range map[string]func(k script.Keys, channel, origin string) script.Call{
		"invalidate": script.Invalidate, "expire": script.Expire,
	} {
		t.Run(step, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
				rdb := s.Client(t)
				c := hearing[string](t, rdb)
				var db variable
				db.write("old")
				_, _ = c.Get(t.Context(), "k", db.load)
				sentAs := *c.view.origin.Load()
				faults := redistest.NewFaults(t)
				rdb.AddHook(faults)
				faults.Refuse(1000, runs(step), io.EOF)
				if err := changesOf[step](c, "k", "new"); !errors.Is(err, ErrRedis) {
					t.Fatal(err)
				}
				faults.Clear()
				wantEntry(t, "before it happens", c, "k", "old", Hit)
				wantEntry(t, "before it happens", c, "k", "old", Local)
				db.write("new")
				if _, err := script.Do(t.Context(), s.Client(t), late(c.view.names("k"), c.view.channel, sentAs)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if v, err := c.Get(t.Context(), "k", db.load); v != "new" || err != nil {
					t.Errorf("after it has happened: got %q, %v", v, err)
				}
			})
		})
	}
}

// A read that was answered before a change, and comes to the tier after it, is not kept. So in this process as in
// another, whenever the message comes, and however the value was read.
func TestFillsThatChangesOvertake(t *testing.T) {
	type reader struct {
		stored  bool // the value is in Redis before
		command redistest.Match
		read    func(c *Cache[string], db *variable) (string, error)
	}
	get := func(c *Cache[string], db *variable) (string, error) { return c.Get(context.Background(), "k", db.load) }
	many := func(c *Cache[string], db *variable) (string, error) {
		values, err := c.GetMany(context.Background(), []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
			v, err := db.load(ctx)
			return map[string]string{"k": v}, err
		})
		return values["k"], err
	}
	// The tier has a value that another process has refreshed.
	elected := func(c *Cache[string]) {
		c.view.local.tier.Put("k", &localEntry{stored: stored{value: new(string), head: head{token: newToken(), cost: 1}}, now: 10_000, until: time.Hour}, c.view.seq.Add(1))
	}
	elects := func(c *Cache[string], db *variable) (string, error) {
		elected(c)
		_, _ = get(c, db)
		return *db.Load(), nil
	}
	electsMany := func(c *Cache[string], db *variable) (string, error) {
		elected(c)
		_, _ = many(c, db)
		return *db.Load(), nil
	}
	for name, r := range map[string]reader{
		"hit":            {true, redistest.Named("get"), get},
		"load":           {false, runs("commit"), get},
		"batch of hits":  {true, redistest.Named("get"), many},
		"batch of loads": {false, runs("commit"), many},
		"lookup": {true, redistest.Named("get"), func(c *Cache[string], _ *variable) (string, error) {
			e, err := c.Lookup(context.Background(), "k")
			return e.Value, err
		}},
		"answer of a refresh":         {true, runs("acquire"), elects},
		"answer of a batch's refresh": {true, runs("acquire"), electsMany},
		"answer of the acquire": {true, runs("acquire"), func(c *Cache[string], db *variable) (string, error) {
			v, err := get(c, db) // the read before it found nothing
			return v, err
		}},
	} {
		for changeName, change := range changesOf {
			for _, by := range []string{"itself", "another"} {
				for _, heard := range []string{"before the answer", "after it"} {
					t.Run(strings.Join([]string{name, changeName, by, heard}, "/"), func(t *testing.T) {
						inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
							rdb := s.Client(t)
							c, p := hearingThrough(t, s, rdb, func(o *Options) { o.EarlyRefresh = 1 })
							other := open[string](t, s.Client(t))
							var db variable
							db.write("old")
							if r.stored && name != "answer of the acquire" {
								_, _ = get(other, &db)
							}
							if name == "answer of the acquire" {
								var once sync.Once
								rdb.AddHook(around{after: func(cmds []redis.Cmder, _ error) {
									if cmds[0].Name() == "get" {
										once.Do(func() { _, _ = get(other, &db) })
									}
								}})
							}
							reached, release := make(chan struct{}), make(chan struct{})
							var once sync.Once
							rdb.AddHook(around{after: func(cmds []redis.Cmder, err error) {
								if r.command(wordsOf(cmds[0])) && err == nil { // else the server has yet to learn a script
									once.Do(func() { close(reached); <-release })
								}
							}})
							done := make(chan struct{})
							go func() {
								defer close(done)
								if v, err := r.read(c, &db); v != "old" && v != "new" || err != nil {
									t.Errorf("got %q, %v", v, err)
								}
							}()
							<-reached
							if heard == "after it" {
								p.Freeze()
							}
							db.write("new")
							changer := other
							if by == "itself" {
								changer = c
							}
							if err := change(changer, "k", "new"); err != nil {
								t.Fatal(err)
							}
							synctest.Wait()
							close(release)
							<-done
							p.Thaw()
							synctest.Wait()
							if v, err := get(c, &db); v != "new" || err != nil {
								t.Errorf("then: got %q, %v", v, err)
							}
						})
					})
				}
			}
		}
	}
}

func wordsOf(cmd redis.Cmder) (words []string) {
	for _, arg := range cmd.Args() {
		words = append(words, fmt.Sprint(arg))
	}
	return words
}

// What a load has brought is not kept when it was not stored, or may not have been: a change came before.
func TestWhatIsNotStoredIsNotKept(t *testing.T) {
	many := func(c *Cache[string], load func(context.Context) (string, error)) {
		_, _ = c.GetMany(context.Background(), []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
			v, err := load(ctx)
			return map[string]string{"k": v}, err
		})
	}
	for name, lost := range map[string]bool{"rejected": false, "unanswered": true} {
		for how, read := range map[string]func(c *Cache[string], load func(context.Context) (string, error)){
			"one": func(c *Cache[string], load func(context.Context) (string, error)) {
				_, _ = c.Get(context.Background(), "k", load)
			},
			"batch": many,
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
					rdb := s.Client(t)
					c, other := hearing[string](t, rdb), open[string](t, s.Client(t))
					faults := redistest.NewFaults(t)
					rdb.AddHook(faults)
					if lost {
						faults.Refuse(1000, runs("commit"), io.EOF)
					}
					var db variable
					db.write("old")
					read(c, func(ctx context.Context) (string, error) {
						v, err := db.load(ctx)
						db.write("new")
						_ = other.Invalidate(ctx, "k")
						time.Sleep(testLoad) // until that is heard
						return v, err
					})
					faults.Clear()
					time.Sleep(time.Minute) // until Redis is asked again
					if v, err := c.Get(t.Context(), "k", db.load); v != "new" || err != nil {
						t.Errorf("then: got %q, %v", v, err)
					}
				})
			})
		}
	}
}

// A key that is asked for in vain takes no place in the tier.
func TestMissesTakeNoPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		c := hearing[string](t, s.Client(t))
		_, _ = c.Lookup(t.Context(), "one")
		_, _ = c.GetMany(t.Context(), []string{"one", "two"}, func(context.Context, []string) (map[string]string, error) { return nil, errSource })
		forgetful := c.With(Policy{AbsentTTL: -1})
		_, _ = forgetful.Get(t.Context(), "three", fails(0, ErrNotFound).Load)
		for _, key := range []string{"one", "two", "three"} {
			if c.view.local.tier.Get(key) != nil {
				t.Errorf("%s is held", key)
			}
		}

		// What turns out not to exist is not kept for an outage, even when that is not remembered.
		soft := forgetful.With(Policy{TTL: time.Second, StaleFor: time.Hour})
		set(t, soft, "k", "v")
		wantEntry(t, "read", soft, "k", "v", Hit)
		time.Sleep(2 * time.Second)
		_, _ = soft.Get(t.Context(), "k", fails(0, ErrNotFound).Load) // stale, and refreshed
		synctest.Wait()
		if e, _ := c.view.local.kept("k"); e != nil {
			t.Errorf("%q is kept", e.value)
		}
	})
}
