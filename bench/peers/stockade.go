package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stockade-cache/stockade"
)

// ours is this library.
type ours[T any] struct {
	rdb      *redis.Client
	cache    *stockade.Cache[T]
	settings string
}

func openStockade[T any](c Config) (Peer[T], error) {
	return openOurs[T](c, newClient(c), stockade.Options{}, "")
}

// openOurs adds what c says to the options, and takes the client over. settings says what the options change.
func openOurs[T any](c Config, rdb *redis.Client, options stockade.Options, settings string) (Peer[T], error) {
	options.Prefix, options.TTL = c.Prefix, c.TTL
	if c.NoJitter {
		options.Jitter = -1
		settings = strings.TrimPrefix(settings+"; no jitter", "; ")
	}
	if c.EarlyRefresh != 0 {
		options.EarlyRefresh = c.EarlyRefresh
		settings = strings.TrimPrefix(fmt.Sprintf("%s; EarlyRefresh %g", settings, c.EarlyRefresh), "; ")
	}
	cache, err := stockade.New[T](rdb, options)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &ours[T]{rdb, cache, settings}, nil
}

func (p *ours[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	return p.cache.Get(ctx, key, stockade.Loader[T](load))
}

func (p *ours[T]) Set(ctx context.Context, key string, value T) error {
	return p.cache.Set(ctx, key, value)
}

func (p *ours[T]) Invalidate(ctx context.Context, key string) error {
	return p.cache.Invalidate(ctx, key)
}

func (p *ours[T]) Settings() string { return p.settings }

func (p *ours[T]) Close() error { return errors.Join(p.cache.Close(), p.rdb.Close()) }
