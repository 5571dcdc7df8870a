package script

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// answers runs a step and compares its status.
func (b *bench) answers(run call, rdb *redis.Client, want Status) {
	b.Helper()
	got, err := run(b.Context(), rdb)
	if err != nil {
		got = refused
	}
	if got != want {
		b.Fatalf("status %d, %v, want %d", got, err, want)
	}
}

// I4 A step leaves the same state when it is executed twice, and says what happened. I9 Each key expires. A message is
// published when somebody waits for it, or when the value changed by another's hand.
func TestSteps(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				b := newBench(t, s)
				run := c.prepare(b)
				heard := b.heard(func() { b.answers(run, b.rdb, c.want) })
				if strings.Join(heard, " ") != c.message {
					t.Errorf("published %q, want %q", heard, c.message)
				}
				once := b.snapshot()
				b.answers(run, b.rdb, c.again)
				if twice := b.snapshot(); !same(once, twice) {
					t.Errorf("state after the second run\n%v\nwant\n%v", twice, once)
				}
			})
		})
	}
}

// I4 A step whose reply is lost is repeated by the client, which gets the answer of the second execution.
func TestStepsUnderALostReply(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				b := newBench(t, s)
				p := redistest.NewProxy(t, s)
				run := c.prepare(b)
				// The server knows the script only when it was prepared with it.
				p.DropReplies(1, func(command []string) bool {
					return command[0] == "eval" || command[0] == "evalsha" && b.knows(command[1])
				})
				b.answers(run, p.Client(t), c.again)
				b.snapshot()
			})
		})
	}
}

func (b *bench) knows(hash string) bool {
	known, err := b.direct.ScriptExists(context.Background(), hash).Result()
	return err == nil && known[0]
}

// Any step may be the first that a server sees, and the script may go between two runs.
func TestStepsAfterScriptFlush(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				b := newBench(t, s)
				sent := redistest.NewFaults(t)
				counted := s.Client(t)
				counted.AddHook(sent)
				run := c.prepare(b)
				for i, want := range []Status{c.want, c.again} {
					if err := b.direct.ScriptFlush(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					b.answers(run, counted, want)
					if hashes, sources := sent.Count("evalsha"), sent.Count("eval"); hashes != i+1 || sources != i+1 {
						t.Errorf("sent %d hashes and %d sources, want %d of each", hashes, sources, i+1)
					}
				}
				b.answers(run, counted, c.again)
				if sources := sent.Count("eval"); sources != 2 {
					t.Errorf("sent the source of a known script")
				}
			})
		})
	}
}

// Set is for clients that must not repeat it.
func TestSetIsSentOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		b.all()
		value := b.value()
		set := func(r Runner) (Result, error) {
			return Set(t.Context(), r, k, []byte(value), life, b.soon(), channel, origin)
		}
		heard := b.heard(func() {
			if r, err := set(b.rdb); r.Status != Stored || err != nil {
				t.Errorf("set: %v, %v, want stored", r, err)
			}
		})
		if !slices.Equal(heard, []string{"i" + origin + k.Value}) {
			t.Errorf("published %q", heard)
		}
		all := b.snapshot()
		if len(all) != 1 || all[k.Value].value != value {
			t.Errorf("state %v, want the value alone", all)
		}
		p := redistest.NewProxy(t, s)
		p.DropReplies(1, redistest.Named("evalsha"))
		heard = b.heard(func() {
			if r, err := set(p.Client(t)); err == nil {
				t.Errorf("set with a lost reply: %v, want an error", r)
			}
		})
		if len(heard) != 1 {
			t.Errorf("executed %d times, want once", len(heard))
		}
		late, err := Set(t.Context(), b.rdb, k, []byte("late"), life, b.now()-1, channel, origin)
		if late.Status != TooLate || err != nil || b.get(k.Value) != value {
			t.Errorf("late set: %v, %v, value %q", late, err, b.get(k.Value))
		}
	})
}

func calls(step func(k Keys, channel, origin string) Call, keys []Keys) (list []Call) {
	for _, k := range keys {
		list = append(list, step(k, channel, origin))
	}
	return list
}

func TestManyKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		b := newBench(t, s)
		var keys []Keys
		for i := range 50 {
			keys = append(keys, Keys{fmt.Sprint("v", i), fmt.Sprint("l", i), fmt.Sprint("e", i)})
			b.put(keys[i].Value, b.value())
		}
		b.direct.Del(t.Context(), keys[7].Value)
		if err := b.direct.RPush(t.Context(), keys[7].Value, "foreign").Err(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // without and with the script
			results, errs := DoMany(t.Context(), b.rdb, calls(Expire, keys))
			for i := range keys {
				if failed := errs[i] != nil; failed != (i == 7) || !failed && results[i].Status != Stored {
					t.Errorf("expire %d: %v, %v", i, results[i], errs[i])
				}
			}
		}
		for range 2 {
			results, errs := DoMany(t.Context(), b.rdb, calls(Invalidate, keys))
			for i := range keys {
				if errs[i] != nil || results[i].Status != Stored {
					t.Errorf("invalidate %d: %v, %v", i, results[i], errs[i])
				}
			}
		}
		if all := b.snapshot(); len(all) != 0 {
			t.Errorf("%d keys are left", len(all))
		}
		if results, errs := DoMany(t.Context(), b.rdb, nil); len(results)+len(errs) != 0 {
			t.Errorf("no keys: %v, %v", results, errs)
		}
	})
}
