package bloom

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// design is the shape of a filter.
type design struct {
	bits   uint64 // of one shard
	shards int
	hashes int // probes of a key, all in one shard
}

const (
	maxShardBits = 1 << 31 // 256 MiB, half of what a string of Redis may have
	maxShards    = 64
)

// designFor returns the smallest filter for n keys with the rate p of false positives: k = −log2 p probes, and as many bits
// m as p = (1 − e^(−kn/m))^k needs; were k not rounded, m = −n·ln p / (ln 2)² (Broder, Mitzenmacher, "Network Applications
// of Bloom Filters: A Survey", 2004, section 2.2). Each shard is a filter for its part of the keys. ok
// is false when it would be too large.
func designFor(n int64, p float64, maxBits uint64) (d design, ok bool) {
	k := max(math.Round(-math.Log2(p)), 1)
	m := max(math.Ceil(-k*float64(n)/math.Log1p(-math.Pow(p, 1/k))), 8)
	shards := math.Ceil(m / float64(maxBits))
	if shards > maxShards || k > math.MaxUint8 {
		return design{}, false
	}
	return design{bits: uint64(math.Ceil(m / shards)), shards: int(shards), hashes: int(k)}, true
}

// generation is one filter in Redis. Its name says its shape, so that processes with other Options use it all the same,
// and carries a random part, so that none comes twice.
type generation struct {
	design
	text    string
	foreign bool // of a version that this one cannot read
}

// format is the version of the shape and of place.
const format = 1

func newGeneration(d design, token string) *generation {
	return &generation{design: d, text: fmt.Sprintf("%d.%d.%d.%d.%s", format, d.bits, d.shards, d.hashes, token)}
}

// parseGeneration reads a name; nil for none.
func parseGeneration(text string) *generation {
	if text == "" {
		return nil
	}
	g := &generation{text: text}
	var version int
	var token string
	n, err := fmt.Sscanf(strings.ReplaceAll(text, ".", " "), "%d %d %d %d %s", &version, &g.bits, &g.shards, &g.hashes, &token)
	g.foreign = n != 5 || err != nil || version != format ||
		g.bits < 1 || g.bits > math.MaxUint32 || g.shards < 1 || g.shards > maxShards || g.hashes < 1 || g.hashes > math.MaxUint8
	return g
}

// place appends where a key is: its shard, counted from first, and the offsets of its bits.
func (g *generation) place(args []any, first int, key string) []any {
	p := newProbes(key)
	args = append(args, first+int(p.below(uint64(g.shards))))
	for range g.hashes {
		args = append(args, p.below(g.bits))
	}
	return args
}

// probes is the stream of random numbers that belongs to a key: SplitMix64 (Steele, Lea, Flood, "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014), seeded with the key's hash.
type probes uint64

func newProbes(key string) probes { return probes(xxhash.Sum64String(key)) }

// below returns the next number below n: the high half of a product, without the bias and the price of a remainder
// (Lemire, "Fast Random Integer Generation in an Interval", 2019).
func (p *probes) below(n uint64) uint64 {
	*p += 0x9e3779b97f4a7c15
	z := uint64(*p)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	high, _ := bits.Mul64(z^z>>31, n)
	return high
}

// state is which generations there are: what is stored is their names, a space between them, or nothing.
type state struct {
	text    string
	current *generation // that answers; nil when none was built
	next    *generation // that is being built, if any
}

func newState(current, next *generation) *state {
	s := &state{current: current, next: next}
	s.text = current.name() + " " + next.name()
	return s
}

func parseState(text string) *state {
	current, next, _ := strings.Cut(text, " ")
	return &state{text: text, current: parseGeneration(current), next: parseGeneration(next)}
}

func (g *generation) name() string {
	if g == nil {
		return ""
	}
	return g.text
}

func (g *generation) isForeign() bool { return g != nil && g.foreign }
