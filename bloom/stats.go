package bloom

import (
	"context"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
)

// Stats is what a filter holds.
type Stats struct {
	Built    bool // false: it was not built, or is lost, and rules nothing out; the other fields are zero
	Building bool // a Rebuild is going on, or was left unfinished
	Bits     uint64
	Shards   int // strings in Redis that the bits are in
	Hashes   int // bits of a key
	Set      uint64
	// Fill is Set/Bits: a half when it holds the keys that it was made for.
	Fill float64
	// Rate is how often a key that was not added may exist at present: Fill^Hashes.
	Rate float64
	// Keys is how many different keys were added, about: −Bits/Hashes · ln(1 − Fill) (Swamidass, Baldi, "Mathematical
	// Correction for Fingerprint Similarity Measures", 2007).
	Keys int64
}

// statsRange is how many bytes one command counts, so that no other has to wait for long.
const statsRange = 4 << 20

// Stats counts the bits of the filter: Redis reads all of it, in parts, so ask by the minute and not by the request. With
// a client that reads from replicas it may be behind. The error Is [stockade.ErrRedis].
func (f *Filter) Stats(ctx context.Context) (Stats, error) {
	for range maxTurns {
		s, err := f.look(ctx)
		if err != nil {
			return Stats{}, err
		}
		g := s.current
		if g == nil || g.isForeign() {
			return Stats{Built: g != nil, Building: s.next != nil}, nil
		}
		set, there, err := f.count(ctx, g)
		if err != nil {
			return Stats{}, err
		}
		after, err := f.look(ctx)
		if err != nil {
			return Stats{}, err
		}
		if after.current.name() == g.text {
			return statsOf(g, set, there, after.next != nil), nil
		}
	}
	return Stats{}, errUnsteady
}

// count counts the bits that are set, and the shards that are there.
func (f *Filter) count(ctx context.Context, g *generation) (set uint64, there int64, err error) {
	for _, name := range f.shardNames(g) {
		pipe := f.rdb.Pipeline()
		exists := pipe.Exists(ctx, name)
		var parts []*redis.IntCmd
		for from := int64(0); from <= int64(g.bits/8); from += statsRange {
			parts = append(parts, pipe.BitCount(ctx, name, &redis.BitCount{Start: from, End: from + statsRange - 1}))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, 0, fmt.Errorf("bloom: %w: %w", stockade.ErrRedis, err)
		}
		there += exists.Val()
		for _, part := range parts {
			set += uint64(part.Val())
		}
	}
	return set, there, nil
}

func statsOf(g *generation, set uint64, there int64, building bool) Stats {
	if there < int64(g.shards) {
		return Stats{Building: building}
	}
	m, k := float64(g.bits)*float64(g.shards), float64(g.hashes)
	fill := float64(set) / m
	keys := min(-m/k*math.Log1p(-fill), math.MaxInt64/2) // all bits set: any number
	return Stats{
		Built: true, Building: building, Bits: g.bits * uint64(g.shards), Shards: g.shards, Hashes: g.hashes,
		Set: set, Fill: fill, Rate: math.Pow(fill, k), Keys: int64(math.Round(keys)),
	}
}
