// Package bloom is a [stockade.Guard]: a Bloom filter in Redis, shared by the fleet, that rules out keys that cannot
// exist before they are looked up in the source. It may say of a key that does not exist that it may (a false positive,
// as often as [Options.Rate] says); what was added it never rules out.
//
//	filter, err := bloom.New(rdb, bloom.Options{Prefix: "product", Keys: 10_000_000})
//	cache, err := stockade.New[Product](rdb, stockade.Options{Prefix: "product", Guard: filter})
//
// # Building it
//
// A filter rules nothing out until it was built by [Filter.Rebuild], or by [Filter.Fill] of one that was not, nor after
// its keys were lost: a flushed or emptied Redis makes loads, not errors. It has no expiry. A filter cannot forget a
// key, and false positives grow with the keys beyond those that it was made for: rebuild it now and then. [Filter.Stats]
// tells how full it is.
//
// # Inserting a key
//
// Write to the source first, then [Filter.Add], then [stockade.Cache.Invalidate]. In this order a rebuild at the same time
// loses nothing: it reads the source after the write, or the addition goes into the new generation too. Until Add has
// returned the key may be ruled out, and when it fails it must be tried again until it succeeds, as Invalidate must.
//
// # Not promised
//
// A failover or a restart of Redis that loses acknowledged additions makes the filter rule out keys that exist: rebuild
// it then.
package bloom

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
)

// Options configure a [Filter]. Prefix and Keys are required.
type Options struct {
	// Prefix is the namespace of the filter's keys in Redis, without braces. It may be that of a cache. Required.
	Prefix string
	// Keys is how many different keys the filter is made for. With more the false positives grow. Required.
	Keys int64
	// Rate is the share of keys that do not exist of which the filter says that they may, when it holds Keys: above 0,
	// below 1. Each tenth of it costs 4.8 more bits a key. Default 0.01, which takes 9.6 bits a key.
	Rate float64
}

// Filter is a Bloom filter in Redis. It is safe for concurrent use, and has nothing to close. Filters with one Prefix, in
// whatever process, are one filter; Keys and Rate of an existing one change with the next [Filter.Rebuild].
type Filter struct {
	rdb    redis.UniversalClient
	prefix string
	design design
	state  atomic.Pointer[state] // as this process saw it last; a step that finds another one does nothing
}

var _ stockade.Guard = (*Filter)(nil)

const defaultRate = 0.01

// New returns a filter on a client of any kind but a Ring, whose shards change hands without their keys. It does no I/O.
// The error names the field and the value that it refuses.
func New(rdb redis.UniversalClient, opts Options) (*Filter, error) {
	if opts.Rate == 0 {
		opts.Rate = defaultRate
	}
	_, isRing := rdb.(*redis.Ring)
	switch {
	case opts.Prefix == "":
		return nil, configError("Prefix", `""`, "required")
	case strings.ContainsAny(opts.Prefix, "{}"):
		return nil, configError("Prefix", opts.Prefix, "must have no braces: they would decide about the cluster's slot")
	case opts.Keys < 1:
		return nil, configError("Keys", opts.Keys, "must be at least 1")
	case math.IsNaN(opts.Rate) || opts.Rate <= 0 || opts.Rate >= 1:
		return nil, configError("Rate", opts.Rate, "must be above 0 and below 1")
	case isNil(rdb):
		return nil, configError("client", rdb, "a go-redis client is required")
	case isRing:
		return nil, configError("client", "a Ring", "its shards change hands without their keys: a filter there would rule out what exists")
	}
	d, ok := designFor(opts.Keys, opts.Rate, maxShardBits)
	if !ok {
		return nil, configError("Keys", opts.Keys,
			fmt.Sprintf("too many for the Rate %v: more than %d GiB", opts.Rate, maxShards*maxShardBits>>33))
	}
	f := &Filter{rdb: rdb, prefix: opts.Prefix, design: d}
	f.state.Store(&state{})
	return f, nil
}

func isNil(rdb redis.UniversalClient) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func configError(field string, value any, want string) error {
	return fmt.Errorf("bloom: %s is %v: %s", field, value, want)
}

// MayExist reports for each key whether it may exist. False is certain: the key was not added. All may exist when the
// filter was not built, or is lost. One round trip answers up to 1000 keys. The error Is [stockade.ErrRedis], or ctx's cause.
// A call waits for Redis as long as the client's options let it; a cache that asks waits for its RedisTimeout.
func (f *Filter) MayExist(ctx context.Context, keys []string) ([]bool, error) {
	may := make([]bool, 0, len(keys))
	for some := range slices.Chunk(keys, maxBatch) {
		answers, err := f.probe(ctx, some)
		if err != nil {
			return nil, err
		}
		may = append(may, answers...)
	}
	return may, nil
}

// Add adds a key. When it has returned nil no process rules the key out. See the package documentation for the order of
// a write. It does nothing to a filter that was not built: building reads the source later. It may be repeated. The error Is
// [stockade.ErrRedis], or ctx's cause, or says that the filter was built by another version of this package.
func (f *Filter) Add(ctx context.Context, key string) error { return f.AddMany(ctx, []string{key}) }

// AddMany is Add of many keys, in few round trips. After an error some of them may have been added.
func (f *Filter) AddMany(ctx context.Context, keys []string) error {
	for some := range slices.Chunk(keys, maxBatch) {
		if _, err := f.add(ctx, f.state.Load(), some, nil); err != nil {
			return err
		}
	}
	return nil
}

// maxBatch bounds the keys of one step: a step is all that Redis does meanwhile, a few milliseconds.
const maxBatch = 1000

// maxTurns bounds how often a call begins anew since the filter was switched meanwhile.
const maxTurns = 8

// probe asks about up to maxBatch keys.
func (f *Filter) probe(ctx context.Context, keys []string) ([]bool, error) {
	may := slices.Repeat([]bool{true}, len(keys))
	s := f.state.Load()
	for range maxTurns {
		names := []string{f.stateName()}
		args := []any{s.text, 0}
		if g := s.current; g != nil && !g.foreign {
			names = append(names, f.shardNames(g)...)
			args[1] = g.hashes
			for _, key := range keys {
				args = g.place(args, 2, key)
			}
		}
		text, answers, err := f.run(ctx, probeStep, names, args)
		if err != nil {
			return nil, err
		}
		if text == s.text {
			for i := range min(len(answers), len(may)) {
				may[i] = answers[i] == '1'
			}
			return may, nil
		}
		s = f.learn(text)
	}
	return may, nil
}

// add adds up to maxBatch keys to the current generation and to one that is being built, or only to that one, which then
// must still be the one that is built. s is the state that the caller knows; the one that was met is returned.
func (f *Filter) add(ctx context.Context, s *state, keys []string, only *generation) (*state, error) {
	for range maxTurns {
		names := []string{f.stateName()}
		args := []any{s.text}
		for _, g := range []*generation{s.current, s.next} {
			if g == nil || only != nil && g.text != only.text {
				continue
			}
			if g.foreign {
				return nil, errForeign
			}
			first := len(names) + 1
			names = append(names, f.shardNames(g)...)
			for _, key := range keys {
				args = g.place(append(args, g.hashes), first, key)
			}
		}
		if only != nil && s.next.name() != only.text {
			return nil, ErrSuperseded
		}
		text, _, err := f.run(ctx, addStep, names, args)
		if err != nil {
			return nil, err
		}
		if text == s.text {
			return s, nil
		}
		s = f.learn(text)
	}
	return nil, errUnsteady
}
