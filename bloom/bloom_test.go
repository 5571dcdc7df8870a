package bloom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

func open(t testing.TB, rdb redis.UniversalClient, change ...func(*Options)) *Filter {
	t.Helper()
	opts := Options{Prefix: "test", Keys: 1000}
	for _, f := range change {
		f(&opts)
	}
	f, err := New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func build(t testing.TB, f *Filter, keys ...string) {
	t.Helper()
	if err := f.Rebuild(t.Context(), Keys(slices.Values(keys)), nil); err != nil {
		t.Fatal(err)
	}
}

func wantMay(t testing.TB, f *Filter, want bool, keys ...string) {
	t.Helper()
	may, err := f.MayExist(t.Context(), keys)
	if err != nil || len(may) != len(keys) {
		t.Fatalf("got %d answers for %d keys, %v", len(may), len(keys), err)
	}
	for i := range may {
		if may[i] != want {
			t.Errorf("%.40q may exist: got %v, want %v", keys[i], may[i], want)
		}
	}
}

func wantKeys(t testing.TB, rdb redis.UniversalClient, want int) {
	t.Helper()
	keys, err := rdb.Keys(context.Background(), "*").Result()
	if len(keys) != want || err != nil {
		t.Errorf("in Redis: got %q, %v, want %d keys", keys, err, want)
	}
}

func numbered(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(prefix, i)
	}
	return keys
}

func TestAFilterRulesOutWhatWasNotAdded(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		few := func(o *Options) { o.Rate = 1e-9 }
		f, elsewhere := open(t, s.Client(t), few), open(t, s.Client(t), few)
		build(t, f, "a", "")
		if err := f.Add(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		if err := elsewhere.AddMany(t.Context(), []string{"c", "\xff\x00", strings.Repeat("long", 1<<16)}); err != nil {
			t.Fatal(err)
		}
		for _, f := range []*Filter{f, elsewhere} {
			wantMay(t, f, true, "a", "b", "c", "", "\xff\x00", strings.Repeat("long", 1<<16))
			wantMay(t, f, false, numbered("x", 100)...)
			wantMay(t, f, true)
		}
		wantKeys(t, s.Client(t), 2)
	})
}

// A filter that was not built, or whose keys are lost, all or some, rules nothing out, and no Add brings a part of it back.
func TestAFilterThatIsNotThereRulesNothingOut(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		f := open(t, rdb)
		check := func(what string) {
			t.Helper()
			for _, f := range []*Filter{f, open(t, rdb)} {
				if err := f.Add(t.Context(), "added"); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				wantMay(t, f, true, "a", "added", "x")
			}
			if stats, err := f.Stats(t.Context()); stats.Built || err != nil {
				t.Errorf("%s: got %+v, %v", what, stats, err)
			}
			build(t, f, "a")
			wantMay(t, f, false, "x")
			wantMay(t, open(t, rdb), false, "x")
			wantKeys(t, rdb, 2)
		}
		check("not built")
		rdb.FlushAll(t.Context())
		check("flushed")
		rdb.Del(t.Context(), f.shardNames(f.state.Load().current)...)
		check("shard evicted")
		rdb.Del(t.Context(), f.shardNames(f.state.Load().current)...)
		rdb.Del(t.Context(), f.stateName())
		check("all evicted")
	})
}

func TestBatchesTakeOneRoundTrip(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		f := open(t, rdb, func(o *Options) { o.Keys = 10_000 })
		build(t, f)
		wantMay(t, f, false, "x") // the server knows the script
		keys := numbered("k", 1000)
		before := faults.Count()
		if err := f.AddMany(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		added := faults.Count()
		wantMay(t, f, true, keys...)
		if probed := faults.Count() - added; probed != 1 || added-before > 2 {
			t.Errorf("%d commands to add 1000 keys, %d to ask for them", added-before, probed)
		}
	})
}

// Adding to the filter and then invalidating makes a new key visible everywhere, also when it was ruled out before.
func TestInsert(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		f := open(t, s.Client(t))
		build(t, f)
		var rows sync.Map
		load := func(context.Context) (string, error) {
			if v, ok := rows.Load("k"); ok {
				return v.(string), nil
			}
			t.Error("loaded a key that was ruled out")
			return "", stockade.ErrNotFound
		}
		var caches []*stockade.Cache[string]
		for range 2 {
			c, err := stockade.New[string](s.Client(t), stockade.Options{Prefix: "test", Guard: open(t, s.Client(t))})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			caches = append(caches, c)
		}
		for _, c := range caches {
			if _, err := c.Get(t.Context(), "k", load); !errors.Is(err, stockade.ErrNotFound) {
				t.Errorf("before: got %v", err)
			}
		}
		rows.Store("k", "v")
		if err := f.Add(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := caches[0].Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		for _, c := range caches {
			if v, err := c.Get(t.Context(), "k", load); v != "v" || err != nil {
				t.Errorf("after: got %q, %v", v, err)
			}
		}
	})
}

// What a newer version has built is not ruled out by, nor written to, nor replaced.
func TestAFilterOfANewerVersion(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		for _, text := range []string{"2.64.1.7.x ", "1.64.1.7 ", "1.64.99999999.7.x ", "1.64.1.999999999.x ", "1.0.1.7.x ", "other"} {
			f := open(t, rdb)
			rdb.Set(t.Context(), f.stateName(), text, 0)
			wantMay(t, f, true, "a")
			for what, err := range map[string]error{
				"Add":     f.Add(t.Context(), "a"),
				"Rebuild": f.Rebuild(t.Context(), Keys(slices.Values([]string{"a"})), nil),
			} {
				if !errors.Is(err, errForeign) {
					t.Errorf("%q: %s: got %v", text, what, err)
				}
			}
			wantKeys(t, rdb, 1)
		}
	})
}

// An answer that does not come is an error that Is ErrRedis, and no "cannot exist".
func TestRedisFails(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		f := open(t, rdb)
		build(t, f)
		faults.Refuse(3, redistest.Any, io.EOF)
		may, err := f.MayExist(t.Context(), []string{"k"})
		_, stats := f.Stats(t.Context())
		for _, err := range []error{err, stats, f.Add(t.Context(), "k")} {
			if !errors.Is(err, stockade.ErrRedis) || !errors.Is(err, io.EOF) {
				t.Errorf("got %v", err)
			}
		}
		if may != nil {
			t.Errorf("got %v", may)
		}
	})
}
