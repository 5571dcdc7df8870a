package peers

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisaside"
)

// aside stores strings, and keeps them in the process until the server says that the key has changed. Its lock stands in
// place of the value and lives for the TTL, also when a load panics, and no Get may take longer than that.
type aside[T any] struct {
	cache  rueidisaside.CacheAsideClient
	prefix string
	ttl    time.Duration
}

func openRueidisaside[T any](c Config) (Peer[T], error) {
	cache, err := rueidisaside.NewClient(rueidisaside.ClientOption{ClientOption: rueidisOption(c)})
	if err != nil {
		return nil, err
	}
	return &aside[T]{cache, c.Prefix, c.TTL}, nil
}

func (p *aside[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	data, err := p.cache.Get(ctx, p.ttl, p.prefix+":"+key, func(ctx context.Context, _ string) (string, error) {
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

// Set stores what the library would: it offers no way itself, and a Get after its Del may still find the old value.
func (p *aside[T]) Set(ctx context.Context, key string, value T) error {
	data, err := encode(value)
	if err != nil {
		return err
	}
	client := p.cache.Client()
	set := client.B().Set().Key(p.prefix + ":" + key).Value(rueidis.BinaryString(data)).Px(p.ttl).Build()
	return client.Do(ctx, set).Error()
}

func (p *aside[T]) Invalidate(ctx context.Context, key string) error {
	return p.cache.Del(ctx, p.prefix+":"+key)
}

func (p *aside[T]) Settings() string { return "" }

func (p *aside[T]) Close() error {
	p.cache.Close()
	return nil
}
