package peers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/redis/go-redis/v9"
)

// rocks stores strings in a hash beside its lock. When a load panics, the key stays locked for LockExpire.
type rocks[T any] struct {
	rdb      *redis.Client
	client   *rockscache.Client
	prefix   string
	ttl      time.Duration // in Redis
	expire   time.Duration // what Fetch makes ttl of
	settings string
}

func openRockscache[T any](c Config) (Peer[T], error) { return openRocks[T](c, false) }

func openRockscacheStrong[T any](c Config) (Peer[T], error) { return openRocks[T](c, true) }

func openRocks[T any](c Config, strong bool) (Peer[T], error) {
	options := rockscache.NewDefaultOptions()
	var settings []string
	if strong {
		options.StrongConsistency = true
		settings = append(settings, "StrongConsistency")
	}

	// Fetch takes Delay and the jitter off its argument and cuts the rest to whole seconds. What remains of less than a
	// second removes the key, so that a TTL of less than Delay would cache nothing. Hence Delay is added, and a part of a
	// second, which makes of cutting rounding up.
	ttl := wholeSeconds(c.TTL)
	expire := ttl + options.Delay + time.Second - 1
	settings = append(settings, fmt.Sprintf("Fetch for TTL + %v, as it stores for Delay less", options.Delay))
	if ttl != c.TTL {
		settings = append(settings, fmt.Sprintf("TTL %v: it counts in seconds", ttl))
	}
	if c.NoJitter {
		options.RandomExpireAdjustment = 0
		settings = append(settings, "no jitter")
	} else {
		options.RandomExpireAdjustment *= float64(ttl) / float64(expire)
		settings = append(settings, "jitter of a tenth of the TTL, without Delay")
	}

	if lock := wholeSeconds(outlive(c.Load, options.LockExpire)); lock != options.LockExpire {
		options.LockExpire = lock
		settings = append(settings, fmt.Sprintf("LockExpire %v, twice a load", lock))
	}
	rdb := newClient(c)
	return &rocks[T]{rdb, rockscache.NewClient(rdb, options), c.Prefix, ttl, expire, strings.Join(settings, "; ")}, nil
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

func (p *rocks[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	if !p.client.Options.StrongConsistency {
		ctx = lasting{ctx}
	}
	data, err := p.client.Fetch2(ctx, p.prefix+":"+key, p.expire, func() (string, error) {
		value, err := load(ctx)
		if err != nil {
			return "", err
		}
		data, err := encode(value)
		return string(data), err
	})
	if err != nil {
		var none T
		return none, err
	}
	return decode[T]([]byte(data))
}

// lasting is a context that only its deadline ends. What Fetch refreshes in the background has the context of the caller
// that it served: a caller that leaves would end the refresh, and leave the key locked.
type lasting struct{ context.Context }

func (lasting) Done() <-chan struct{} { return nil }

func (l lasting) Err() error {
	if deadline, ok := l.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Set leaves a tag of TagAsDeleted where it is: the next Get loads, though the value is new.
func (p *rocks[T]) Set(ctx context.Context, key string, value T) error {
	data, err := encode(value)
	if err != nil {
		return err
	}
	return p.client.RawSet(ctx, p.prefix+":"+key, string(data), p.ttl)
}

func (p *rocks[T]) Invalidate(ctx context.Context, key string) error {
	return p.client.TagAsDeleted2(ctx, p.prefix+":"+key)
}

func (p *rocks[T]) Settings() string { return p.settings }

func (p *rocks[T]) Close() error { return p.rdb.Close() }
