package bloom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// The measured rate of false positives is within 20 % of the design at capacity, sharded or not.
func TestFalsePositivesAreAsDesigned(t *testing.T) {
	const lookups = 1 << 20
	for _, c := range []struct {
		keys    int
		rate    float64
		maxBits uint64
	}{
		{100_000, 0.01, maxShardBits},
		{100_000, 0.05, maxShardBits},
		{100_000, 0.001, maxShardBits},
		{100_000, 0.01, 1 << 18},
		{1000, 0.01, maxShardBits},
	} {
		d, ok := designFor(int64(c.keys), c.rate, c.maxBits)
		if !ok {
			t.Fatal(c)
		}
		g := newGeneration(d, "x")
		set := make([][]uint64, d.shards)
		for i := range set {
			set[i] = make([]uint64, d.bits/64+1)
		}
		var args []any
		bitsOf := func(key string) ([]uint64, []any) {
			args = g.place(args[:0], 0, key)
			return set[args[0].(int)], args[1:]
		}
		for i := range c.keys {
			shard, offsets := bitsOf(fmt.Sprint("key:", i))
			for _, o := range offsets {
				shard[o.(uint64)/64] |= 1 << (o.(uint64) % 64)
			}
		}
		positives := 0
		for i := range lookups {
			shard, offsets := bitsOf(fmt.Sprint("other:", i))
			if !slices.ContainsFunc(offsets, func(o any) bool { return shard[o.(uint64)/64]&(1<<(o.(uint64)%64)) == 0 }) {
				positives++
			}
		}
		measured := float64(positives) / lookups
		t.Logf("%d keys, %d shards of %d bits, %d probes: designed %.4f %%, measured %.4f %%", c.keys, d.shards, d.bits, d.hashes, 100*c.rate, 100*measured)
		if math.Abs(measured/c.rate-1) > 0.2 {
			t.Errorf("%+v: measured %v", c, measured)
		}
	}
}

// On the server, with four shards: the rate, and what Stats tells of it.
func TestStats(t *testing.T) {
	s := redistest.Real(t)
	f := open(t, s.Client(t))
	const keys, rate = 20_000, 0.05
	f.design, _ = designFor(keys, rate, 1<<15)
	told := 0
	if err := f.Fill(t.Context(), Keys(slices.Values(numbered("k", keys))), func(n int) { told = n }); err != nil || told != keys {
		t.Fatalf("told of %d, %v", told, err)
	}
	wantMay(t, f, true, numbered("k", keys)...)
	may, err := f.MayExist(t.Context(), numbered("x", keys))
	if err != nil {
		t.Fatal(err)
	}
	positives := 0.0
	for _, m := range may {
		if m {
			positives++
		}
	}
	if measured := positives / keys; math.Abs(measured/rate-1) > 0.2 {
		t.Errorf("measured %v, designed %v", measured, rate)
	}
	stats, err := f.Stats(t.Context())
	if err != nil || !stats.Built || stats.Building || stats.Shards != 4 || math.Abs(stats.Fill-0.5) > 0.05 ||
		math.Abs(stats.Rate/rate-1) > 0.1 || math.Abs(float64(stats.Keys)/keys-1) > 0.03 {
		t.Errorf("got %+v, %v", stats, err)
	}
	wantKeys(t, s.Client(t), 5)
}

// Until the new generation is complete the old one answers; then it is gone, for processes that knew it too.
func TestRebuild(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		f := open(t, rdb, func(o *Options) { o.Rate = 1e-6 })
		elsewhere := open(t, s.Client(t), func(o *Options) { o.Keys, o.Rate = 5000, 0.001 }) // uses f's
		build(t, f, "old", "both")
		wantMay(t, elsewhere, true, "old")
		var told []int
		err := f.Rebuild(t.Context(), Keys(func(yield func(string) bool) {
			for _, f := range []*Filter{f, elsewhere} {
				wantMay(t, f, true, "old", "both")
				wantMay(t, f, false, "new", "x")
			}
			if err := elsewhere.Add(t.Context(), "added"); err != nil {
				t.Error(err)
			}
			wantMay(t, f, true, "added")
			for _, key := range append(numbered("k", maxBatch), "new", "both") {
				if !yield(key) {
					return
				}
			}
			wantMay(t, f, false, "k0")
		}), func(n int) { told = append(told, n) })
		if err != nil || !slices.Equal(told, []int{maxBatch, maxBatch + 2}) {
			t.Errorf("told %v, %v", told, err)
		}
		for _, f := range []*Filter{elsewhere, f} {
			wantMay(t, f, true, "new", "both", "added", "k0")
			wantMay(t, f, false, "old", "x")
		}
		wantKeys(t, rdb, 2)
	})
}

// Adds that race rebuilds are never lost: not one key is ruled out from its Add on, in any process.
func TestAddsDuringRebuilds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var mu sync.Mutex
		var source []string // guarded by mu
		read := func(yield func(string) bool) {
			mu.Lock()
			keys := slices.Clone(source)
			mu.Unlock()
			time.Sleep(time.Millisecond) // what is written now is not read
			for _, key := range keys {
				if !yield(key) {
					return
				}
			}
		}
		rebuilder := open(t, s.Client(t))
		build(t, rebuilder)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for w := range 3 {
			f, other := open(t, s.Client(t)), open(t, s.Client(t))
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					key := fmt.Sprint(w, " ", i)
					mu.Lock()
					source = append(source, key)
					mu.Unlock()
					if err := f.Add(t.Context(), key); err != nil {
						t.Error(err)
						return
					}
					wantMay(t, other, true, key, fmt.Sprint(w, " ", rand.IntN(i+1)))
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		for range 20 {
			if err := rebuilder.Rebuild(t.Context(), Keys(read), nil); err != nil {
				t.Error(err)
			}
		}
		close(stop)
		wg.Wait()
		wantMay(t, open(t, s.Client(t)), true, source...)
		wantKeys(t, s.Client(t), 2)
	})
}

// A Rebuild that fails leaves the current generation, and nothing else.
func TestARebuildThatFails(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		f := open(t, rdb)
		build(t, f, "a")
		check := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v", what, err)
			}
			wantMay(t, f, true, "a")
			wantMay(t, f, false, "x")
			wantKeys(t, rdb, 2)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		check("cancelled", f.Rebuild(ctx, Keys(func(yield func(string) bool) { yield("x"); cancel(why) }), nil), why)

		check("the source fails", f.Rebuild(t.Context(), func(yield func(string, error) bool) { _ = yield("x", nil) && yield("", why) }, nil), why)

		func() {
			defer func() { check("panic", recover().(error), why) }()
			_ = f.Rebuild(t.Context(), Keys(func(yield func(string) bool) { yield("x"); panic(why) }), nil)
		}()

		err := f.Rebuild(t.Context(), Keys(func(yield func(string) bool) {
			yield("x")
			rdb.Del(t.Context(), f.shardNames(f.state.Load().next)...)
			if err := f.Add(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}), nil)
		check("shard lost", err, ErrShardLost)

		err = f.Rebuild(t.Context(), Keys(func(yield func(string) bool) {
			build(t, open(t, rdb), "a")
			for i := 0; yield("x"); i++ {
				if i > maxBatch {
					t.Error("a superseded rebuild goes on")
					return
				}
			}
		}), nil)
		check("superseded", err, ErrSuperseded)

		err = f.Rebuild(t.Context(), Keys(func(func(string) bool) { rdb.FlushAll(t.Context()); build(t, f, "a") }), nil)
		check("flushed", err, ErrSuperseded)

		faults := redistest.NewFaults(t)
		broken := s.Client(t)
		broken.AddHook(faults)
		g := open(t, broken)
		wantMay(t, g, false, "x")
		for step := range 4 { // look, make, add, look
			skipped := 0
			faults.LoseReply(1, func(command []string) bool { skipped++; return skipped > step && command[0] == "evalsha" })
			check(fmt.Sprint("reply lost ", step), g.Rebuild(t.Context(), Keys(slices.Values([]string{"a"})), nil), io.EOF)
		}
		// The reply of the switch itself: the outcome is unknown, and both are right.
		skipped := 0
		faults.LoseReply(1, func([]string) bool { skipped++; return skipped > 4 })
		check("switch", g.Rebuild(t.Context(), Keys(slices.Values([]string{"a"})), nil), stockade.ErrRedis)
	})
}

// A step of a Rebuild that comes after another Rebuild changes nothing of it.
func TestRebuildsThatMeet(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		f, other := open(t, rdb), open(t, s.Client(t))
		build(t, f, "old")
		for how, want := range map[string]error{"make": nil, "need": ErrSuperseded} {
			reached, release := faults.Block(func(command []string) bool { return slices.Contains(command, how) })
			done := make(chan error, 1)
			go func() { done <- f.Rebuild(t.Context(), Keys(slices.Values([]string{"new"})), nil) }()
			<-reached
			build(t, other, "new")
			release()
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", how, err, want)
			}
			for _, f := range []*Filter{f, other} {
				wantMay(t, f, true, "new")
				wantMay(t, f, false, "old", "x")
			}
			wantKeys(t, s.Client(t), 2)
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

func TestBadOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	for _, c := range []struct {
		opts         Options
		field, value string
	}{
		{Options{Keys: 1}, "Prefix", `""`},
		{Options{Prefix: "a{b", Keys: 1}, "Prefix", "a{b"},
		{Options{Prefix: "p"}, "Keys", "0"},
		{Options{Prefix: "p", Keys: -1}, "Keys", "-1"},
		{Options{Prefix: "p", Keys: math.MaxInt64}, "Keys", "9223372036854775807"},
		{Options{Prefix: "p", Keys: 1, Rate: -0.1}, "Rate", "-0.1"},
		{Options{Prefix: "p", Keys: 1, Rate: 1}, "Rate", "1"},
		{Options{Prefix: "p", Keys: 1, Rate: math.NaN()}, "Rate", "NaN"},
		{Options{Prefix: "p", Keys: 1, Rate: 1e-300}, "Rate", "1e-300"},
	} {
		_, err := New(rdb, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), c.value) {
			t.Errorf("%+v: got %v, want an error that names %s and %s", c.opts, err, c.field, c.value)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), ring} {
		if _, err := New(rdb, Options{Prefix: "p", Keys: 1}); err == nil || !strings.Contains(err.Error(), "client") {
			t.Errorf("%T: got %v", rdb, err)
		}
	}
}

func TestBadArguments(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		f := open(t, s.Client(t))
		build(t, f)
		var none context.Context
		gone, leave := context.WithCancelCause(t.Context())
		why := errors.New("why")
		leave(why)
		for name, call := range map[string]func(ctx context.Context) error{
			"MayExist": func(ctx context.Context) error { _, err := f.MayExist(ctx, []string{"k"}); return err },
			"Add":      func(ctx context.Context) error { return f.Add(ctx, "k") },
			"Fill":     func(ctx context.Context) error { return f.Fill(ctx, Keys(slices.Values([]string{"k"})), nil) },
			"Rebuild":  func(ctx context.Context) error { return f.Rebuild(ctx, Keys(slices.Values([]string{"k"})), nil) },
			"Stats":    func(ctx context.Context) error { _, err := f.Stats(ctx); return err },
		} {
			if err := call(none); err == nil || !strings.Contains(err.Error(), "ctx") {
				t.Errorf("%s with a nil context: got %v", name, err)
			}
			if err := call(gone); !errors.Is(err, why) {
				t.Errorf("%s with a context that has ended: got %v", name, err)
			}
		}
		for name, err := range map[string]error{"Fill": f.Fill(t.Context(), nil, nil), "Rebuild": f.Rebuild(t.Context(), nil, nil)} {
			if err == nil || !strings.Contains(err.Error(), "keys") {
				t.Errorf("%s of nil: got %v", name, err)
			}
		}
		if err := f.AddMany(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}

// The rights that the README names are enough.
func TestTheRightsOfTheReadmeAreEnough(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "\nACL SETUSER app")
	rights, _, _ := strings.Cut(rest, "\n")
	_, rest, _ = strings.Cut(rest, "With a bloom filter also `")
	more, _, ok := strings.Cut(rest, "`")
	if !ok {
		t.Fatal("no rights in README.md")
	}
	words := []any{"ACL", "SETUSER", "app"}
	for _, w := range strings.Fields(strings.ReplaceAll(rights, "product:", "test:") + " " + more) {
		words = append(words, w)
	}
	s := redistest.NewReal(t)
	if err := s.Client(t).Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	f := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }))
	for range 2 {
		build(t, f, "a")
		if err := f.Add(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		wantMay(t, f, true, "a", "b")
		wantMay(t, f, false, "x")
		if _, err := f.Stats(t.Context()); err != nil {
			t.Error(err)
		}
	}
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

// What was added may exist, whatever else was, and whatever the shape of the filter is.
func FuzzAdded(f *testing.F) {
	filter := open(f, redistest.Fake(f).Client(f))
	f.Add("key", int64(1000), uint8(20))
	f.Add("", int64(1), uint8(1))
	f.Add("\xff{}%", int64(100_000), uint8(255))
	f.Fuzz(func(t *testing.T, key string, keys int64, rate uint8) {
		d, ok := designFor(min(max(keys, 1), 1<<20), (float64(rate)+0.5)/257, 1<<18)
		if !ok {
			return // too large a filter: New refuses it
		}
		filter.design = d
		some := []string{key, key + "2", "3" + key}
		build(t, filter, some[0])
		if err := filter.AddMany(t.Context(), some[1:]); err != nil {
			t.Fatal(err)
		}
		wantMay(t, filter, true, some...)
		if g := parseGeneration(filter.state.Load().current.text); g.foreign || g.design != d {
			t.Errorf("got %+v, want %+v", g, d)
		}
	})
}

func BenchmarkMayExist(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := open(b, redistest.Real(b).Client(b), func(o *Options) { o.Keys = 1_000_000 })
			build(b, f, numbered("k", 100_000)...)
			keys := numbered("k", n)
			for b.Loop() {
				if _, err := f.MayExist(b.Context(), keys); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	f := open(b, redistest.Real(b).Client(b), func(o *Options) { o.Keys = 1_000_000 })
	build(b, f)
	keys := numbered("k", 100_000)
	for b.Loop() {
		if err := f.Fill(b.Context(), Keys(slices.Values(keys)), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(keys))/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkGuard measures what asking the filter costs a miss whose load takes no time, in blocks that take turns with
// misses of a cache without a Guard.
func BenchmarkGuard(b *testing.B) {
	const per = 50
	s := redistest.Real(b)
	keys := numbered("k", 10_000)
	f := open(b, s.Client(b), func(o *Options) { o.Keys = 10_000 })
	build(b, f, keys...)
	miss := func(prefix string, guard stockade.Guard) func() time.Duration {
		c, err := stockade.New[string](s.Client(b), stockade.Options{Prefix: prefix, Guard: guard, TTL: time.Millisecond, AbsentTTL: time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		next := 0
		return func() time.Duration {
			begun := time.Now()
			for range per {
				key := keys[next%len(keys)]
				next++
				if v, err := c.Get(b.Context(), key, func(context.Context) (string, error) { return "v", nil }); v != "v" || err != nil {
					b.Errorf("%s: got %q, %v", key, v, err)
				}
			}
			return time.Since(begun)
		}
	}
	guarded, plain := miss("guarded", f), miss("plain", nil)
	var g, p []time.Duration
	for b.Loop() {
		g, p = append(g, guarded()), append(p, plain())
	}
	slices.Sort(g)
	slices.Sort(p)
	b.ReportMetric(float64(p[len(p)/2])/per, "ns/miss")
	b.ReportMetric(float64(g[len(g)/2])/float64(p[len(p)/2]), "guarded/miss")
	b.ReportMetric(0, "ns/op")
}
