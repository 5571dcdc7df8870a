package peers

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// store is GET, SET and DEL on go-redis: what contestants that bring no cache in Redis themselves are built on.
type store[T any] struct {
	rdb    *redis.Client
	prefix string
	ttl    time.Duration
}

func newStore[T any](c Config) store[T] {
	return store[T]{newClient(c), c.Prefix, c.TTL}
}

func newClient(c Config) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: c.Redis, Dialer: c.Dial})
}

func (s store[T]) find(ctx context.Context, key string) (value T, found bool, err error) {
	data, err := s.rdb.Get(ctx, s.prefix+":"+key).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return value, false, nil
	case err != nil:
		return value, false, err
	}
	value, err = decode[T](data)
	return value, err == nil, err
}

// through reads a value, and loads and stores it when it is missing. Redis failing is no miss.
func (s store[T]) through(ctx context.Context, key string, load Load[T]) (T, error) {
	value, found, err := s.find(ctx, key)
	if found || err != nil {
		return value, err
	}
	if value, err = load(ctx); err != nil {
		return value, err
	}
	return value, s.Set(ctx, key, value)
}

func (s store[T]) Set(ctx context.Context, key string, value T) error {
	data, err := encode(value)
	if err != nil {
		return err
	}
	return s.rdb.Set(ctx, s.prefix+":"+key, data, s.ttl).Err()
}

func (s store[T]) Invalidate(ctx context.Context, key string) error {
	return s.rdb.Del(ctx, s.prefix+":"+key).Err()
}

func (s store[T]) Settings() string { return "" }

func (s store[T]) Close() error { return s.rdb.Close() }
