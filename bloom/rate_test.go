package bloom

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The measured rate of false positives is within 20 % of the design at capacity, sharded or not.
func TestFalsePositivesAreAsDesigned(t *testing.T) {
	const lookups = 1 << 20 // at 0.1 % chance moves the number of false positives by 3 %
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
			shard, offsets := bitsOf("key:" + strconv.Itoa(i))
			for _, o := range offsets {
				shard[o.(uint64)/64] |= 1 << (o.(uint64) % 64)
			}
		}
		positives := 0
		for i := range lookups {
			shard, offsets := bitsOf("other:" + strconv.Itoa(i))
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
