package stockade

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func do(t testing.TB, rdb redis.UniversalClient, command ...any) {
	t.Helper()
	if err := rdb.Do(context.Background(), command...).Err(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
}

// What Redis will keep refusing is told once, and keys are loaded here; with ReturnError the error is returned.
func TestMisconfiguration(t *testing.T) {
	s := redistest.NewReal(t)
	admin := s.Client(t)
	as := func(user string) func(*redis.Options) {
		return func(o *redis.Options) { o.Username, o.Password = user, "secret" }
	}
	for user, rules := range map[string][]any{
		"noscripts": {"~*", "&*", "+@all", "-eval", "-evalsha"},
		"noreads":   {"~*", "&*", "+@all", "-get", "-mget"},
		"nothing":   {},
		"nokeys":    {"~other:*", "&*", "+@all"},
	} {
		do(t, admin, append([]any{"ACL", "SETUSER", user, "on", ">secret"}, rules...)...)
	}
	names := (&core{opts: Options{Prefix: "test"}}).names("k")
	for name, client := range map[string]func(*redis.Options){
		"NOPERM for scripts": as("noscripts"),
		"NOPERM for reads":   as("noreads"),
		"NOPERM for all":     as("nothing"),
		"NOPERM for keys":    as("nokeys"),
		"WRONGPASS":          as("nobody"),
		"WRONGTYPE value":    nil,
		"WRONGTYPE lease":    nil,
		"WRONGTYPE failure":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			foreign := map[string]string{"WRONGTYPE value": names.Value, "WRONGTYPE lease": names.Lease, "WRONGTYPE failure": names.Failure}[name]
			do(t, admin, "FLUSHALL")
			var change []func(*redis.Options)
			if client != nil {
				change = append(change, client)
			}
			if foreign != "" {
				do(t, admin, "RPUSH", foreign, "theirs")
			}
			var seen events
			c := open[string](t, s.Client(t, change...), seen.watch)
			o := returns("v")
			begun := time.Now()
			for range 20 {
				if v, err := c.Get(t.Context(), "k", o.Load); v != "v" || err != nil {
					t.Fatalf("got %q, %v", v, err)
				}
			}
			if loads := o.loads.Load(); loads > 1+int64(time.Since(begun)/memoryTTL) {
				t.Errorf("%d loads in %v", loads, time.Since(begun))
			}
			strict := open[string](t, s.Client(t, change...), func(o *Options) { o.WhenRedisFails = ReturnError })
			if _, err := strict.Get(t.Context(), "k", o.Load); !errors.Is(err, ErrRedis) {
				t.Errorf("with ReturnError: got %v", err)
			}
			wantTold(t, &seen)
			want(t, "open", seen.count(func(e RedisEvent) bool { return e.Open }), 0)
			if foreign != "" {
				theirs, err := admin.LRange(t.Context(), foreign, 0, -1).Result()
				if err != nil || strings.Join(theirs, " ") != "theirs" {
					t.Errorf("%s is now %q, %v", foreign, theirs, err)
				}
			}
		})
	}
}

// wantTold checks that the Observer was told of each kind of misconfiguration once.
func wantTold(t testing.TB, seen *events) {
	t.Helper()
	told := map[string]int{}
	seen.count(func(e RedisEvent) bool {
		if e.Misconfigured {
			kind, _, _ := strings.Cut(e.Err.Error(), " ")
			told[kind]++
		}
		return false
	})
	for kind, n := range told {
		want(t, "told of "+kind, n, 1)
	}
	if len(told) == 0 {
		t.Error("not told")
	}
}

func TestNoPassword(t *testing.T) {
	s := redistest.NewReal(t)
	do(t, s.Client(t), "CONFIG", "SET", "requirepass", "secret")
	var seen events
	c := open[string](t, s.Client(t), seen.watch)
	for range 20 {
		if v, err := c.Get(t.Context(), "k", returns("v").Load); v != "v" || err != nil {
			t.Fatalf("got %q, %v", v, err)
		}
	}
	if err := c.Set(t.Context(), "k", "v"); !errors.Is(err, ErrRedis) {
		t.Errorf("Set: got %v", err)
	}
	wantTold(t, &seen)
}

// States of a server that refuse requests and pass: no error, one load a key and second, and it works again by itself.
func TestServersThatRefuseForAWhile(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := redistest.NewReal(t)
	admin := s.Client(t)
	for name, state := range map[string]struct{ begin, end [][]any }{
		"READONLY": {
			[][]any{{"REPLICAOF", "127.0.0.1", "1"}},
			[][]any{{"REPLICAOF", "NO", "ONE"}},
		},
		"MASTERDOWN": {
			[][]any{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}},
			[][]any{{"REPLICAOF", "NO", "ONE"}, {"CONFIG", "SET", "replica-serve-stale-data", "yes"}},
		},
		"NOREPLICAS": {
			[][]any{{"CONFIG", "SET", "min-replicas-to-write", "1"}},
			[][]any{{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		},
		"OOM": {
			[][]any{{"CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "noeviction"}, {"CONFIG", "SET", "maxmemory", "100kb"}},
			[][]any{{"CONFIG", "SET", "maxmemory", "0"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			do(t, admin, "FLUSHALL")
			var seen events
			c := open[string](t, s.Client(t), seen.watch)
			if err := c.Set(t.Context(), "stored", "v"); err != nil {
				t.Fatal(err)
			}
			for _, command := range state.begin {
				do(t, admin, command...)
			}
			o := returns("v")
			begun := time.Now()
			for range 20 {
				for _, key := range []string{"k", "stored"} {
					if v, err := c.Get(t.Context(), key, o.Load); v != "v" || err != nil {
						t.Fatalf("got %q, %v", v, err)
					}
				}
			}
			// A full server acknowledges invalidations, so nothing is remembered meanwhile. I1
			if loads, took := o.loads.Load(), time.Since(begun); name != "OOM" && loads > 2+2*int64(took/memoryTTL) {
				t.Errorf("%d loads in %v", loads, took)
			}
			if err := c.Set(t.Context(), "k", "set"); !errors.Is(err, ErrRedis) {
				t.Errorf("Set: got %v", err)
			}
			want(t, "told as misconfigured", seen.count(misconfigured), 0)
			for _, command := range state.end {
				do(t, admin, command...)
			}
			redistest.Eventually(t, 5*time.Second, "a value is stored again", func() bool {
				v, err := c.Get(t.Context(), "k", o.Load)
				if v != "v" || err != nil {
					t.Fatalf("got %q, %v", v, err)
				}
				_, err = c.Lookup(t.Context(), "k")
				return err == nil
			})
		})
	}
}

// A server that loads its data after a restart answers each command with an error, for minutes when there are many, and
// the client repeats each. That is an outage.
func TestLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Fake(t)
		var seen events
		c := open[string](t, s.Client(t), seen.watch)
		if err := c.Set(t.Context(), "k", "stored"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, answer := range []string{
			"LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
			"ERR max number of clients reached",
		} {
			s.Mini.SetError(answer)
			o := slowly("local")
			begun := time.Now()
			for i := 0; time.Since(begun) < 5*time.Second; i++ {
				asked := time.Now()
				if v, err := c.Get(t.Context(), "k", o.Load); v != "local" || err != nil {
					t.Fatalf("got %q, %v", v, err)
				}
				if took := time.Since(asked); took > testLoad && i > 0 || took > testTimeout+testLoad {
					t.Errorf("%s: read %d took %v", answer, i, took)
				}
				time.Sleep(5 * time.Millisecond)
			}
			if loads := o.loads.Load(); loads > 5 {
				t.Errorf("%s: %d loads in 5 s", answer, loads)
			}
			s.Mini.SetError("")
			redistest.Eventually(t, 2*testTimeout, "it works again", func() bool {
				v, err := c.Get(t.Context(), "k", o.Load)
				return v == "stored" && err == nil
			})
			time.Sleep(time.Second)
		}
		want(t, "told as misconfigured", seen.count(misconfigured), 0)
	})
}

// A pool whose connections the application holds is as good as no Redis, for that long.
func TestAnExhaustedPool(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := redistest.NewReal(t)
	rdb := s.Client(t, func(o *redis.Options) { o.PoolSize = 2 })
	c := open[string](t, rdb)
	if err := c.Set(t.Context(), "k", "stored"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() { rdb.BLPop(context.Background(), 2*time.Second, fmt.Sprint("queue", i)) })
	}
	time.Sleep(300 * time.Millisecond)
	o := slowly("local")
	for range 50 {
		asked := time.Now()
		if v, err := c.Get(t.Context(), "k", o.Load); err != nil || v != "local" {
			t.Errorf("got %q, %v", v, err)
		}
		if took := time.Since(asked); took > testTimeout+testLoad+400*time.Millisecond {
			t.Errorf("took %v", took)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if loads := o.loads.Load(); loads > 3 {
		t.Errorf("%d loads", loads)
	}
	wg.Wait()
	redistest.Eventually(t, 5*time.Second, "reads hit again", func() bool {
		v, err := c.Get(t.Context(), "k", o.Load)
		return v == "stored" && err == nil
	})
}
