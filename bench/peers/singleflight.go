package peers

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// flights lets the callers of one process share a read with its load. All depend on the context of the first. A load that
// panics does so in all of them.
type flights[T any] struct {
	store[T]
	group singleflight.Group
}

func openSingleflight[T any](c Config) (Peer[T], error) {
	return &flights[T]{store: newStore[T](c)}, nil
}

// Get has the GET within the flight: a caller that missed just before the flight ended would load once more.
func (p *flights[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	shared, err, _ := p.group.Do(key, func() (any, error) { return p.through(ctx, key, load) })
	value, _ := shared.(T) // nil when T is an interface
	return value, err
}
