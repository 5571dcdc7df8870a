package peers

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// pipelined is GET, load and SET on rueidis, which sends what is asked at the same time together.
type pipelined[T any] struct {
	client   rueidis.Client
	get      func(ctx context.Context, key string) rueidis.RedisResult
	prefix   string
	ttl      time.Duration
	settings string
}

func openRueidis[T any](c Config) (Peer[T], error) {
	option := rueidisOption(c)
	option.DisableCache = true
	option.ForceSingleClient = true // or it takes a miniredis for a cluster, with one connection
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	get := func(ctx context.Context, key string) rueidis.RedisResult {
		return client.Do(ctx, client.B().Get().Key(key).Build())
	}
	return pipelined[T]{client, get, c.Prefix, c.TTL, "DisableCache, ForceSingleClient"}, nil
}

func rueidisOption(c Config) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{c.Redis}}
	if c.Dial != nil {
		option.DialCtxFn = func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return c.Dial(ctx, "tcp", address)
		}
	}
	return option
}

func (p pipelined[T]) Get(ctx context.Context, key string, load Load[T]) (value T, err error) {
	data, err := p.get(ctx, p.prefix+":"+key).AsBytes()
	switch {
	case err == nil:
		return decode[T](data)
	case !rueidis.IsRedisNil(err):
		return value, err
	}
	if value, err = load(ctx); err != nil {
		return value, err
	}
	return value, p.Set(ctx, key, value)
}

func (p pipelined[T]) Set(ctx context.Context, key string, value T) error {
	data, err := encode(value)
	if err != nil {
		return err
	}
	set := p.client.B().Set().Key(p.prefix + ":" + key).Value(rueidis.BinaryString(data)).Px(p.ttl).Build()
	return p.client.Do(ctx, set).Error()
}

func (p pipelined[T]) Invalidate(ctx context.Context, key string) error {
	return p.client.Do(ctx, p.client.B().Del().Key(p.prefix+":"+key).Build()).Error()
}

func (p pipelined[T]) Settings() string { return p.settings }

func (p pipelined[T]) Close() error {
	p.client.Close()
	return nil
}
