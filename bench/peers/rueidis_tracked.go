package peers

import (
	"context"

	"github.com/redis/rueidis"
)

// openRueidisTracked keeps replies in the process until the server says that the key has changed: a moment after the
// change.
func openRueidisTracked[T any](c Config) (Peer[T], error) {
	client, err := rueidis.NewClient(rueidisOption(c))
	if err != nil {
		return nil, err
	}
	get := func(ctx context.Context, key string) rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key(key).Cache(), c.TTL)
	}
	return pipelined[T]{client, get, c.Prefix, c.TTL, ""}, nil
}
