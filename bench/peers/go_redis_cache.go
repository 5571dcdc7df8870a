package peers

import (
	"context"
	"time"

	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
)

// goRedisCache shares a read within one process. An error of Redis is a miss to it, and one of SET is not told. A load that
// panics does so in all who wait.
type goRedisCache[T any] struct {
	rdb    *redis.Client
	cache  *cache.Cache
	prefix string
	asked  time.Duration
}

// shortestTTL of go-redis/cache: anything below becomes an hour.
const shortestTTL = time.Second

func openGoRedisCache[T any](c Config) (Peer[T], error) {
	rdb := newClient(c)
	return &goRedisCache[T]{rdb, cache.New(&cache.Options{Redis: rdb}), c.Prefix, c.TTL}, nil
}

func (p *goRedisCache[T]) item(ctx context.Context, key string) *cache.Item {
	return &cache.Item{Ctx: ctx, Key: p.prefix + ":" + key, TTL: max(p.asked, shortestTTL)}
}

func (p *goRedisCache[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	var value T
	item := p.item(ctx, key)
	item.Value = &value
	item.Do = func(*cache.Item) (any, error) { return load(ctx) }
	err := p.cache.Once(item)
	return value, err
}

func (p *goRedisCache[T]) Set(ctx context.Context, key string, value T) error {
	item := p.item(ctx, key)
	item.Value = value
	return p.cache.Set(item)
}

func (p *goRedisCache[T]) Invalidate(ctx context.Context, key string) error {
	return p.cache.Delete(ctx, p.prefix+":"+key)
}

func (p *goRedisCache[T]) Settings() string {
	if p.asked < shortestTTL {
		return "TTL 1 s: it takes nothing shorter"
	}
	return ""
}

func (p *goRedisCache[T]) Close() error { return p.rdb.Close() }
