package peers

import (
	"context"

	"github.com/maypok86/otter/v2"
)

// inProcess keeps values in the process for the TTL, before Redis. What it finds there it keeps for another TTL. A load that
// panics does so in the caller that loads, and is an error for the others.
type inProcess[T any] struct {
	store[T]
	cache *otter.Cache[string, T]
}

const otterEntries = 10_000

func openOtter[T any](c Config) (Peer[T], error) {
	cache, err := otter.New(&otter.Options[string, T]{
		MaximumSize: otterEntries, ExpiryCalculator: otter.ExpiryWriting[string, T](c.TTL),
	})
	if err != nil {
		return nil, err
	}
	return inProcess[T]{newStore[T](c), cache}, nil
}

func (p inProcess[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	return p.cache.Get(ctx, key, otter.LoaderFunc[string, T](func(ctx context.Context, key string) (T, error) {
		return p.through(ctx, key, load)
	}))
}

func (p inProcess[T]) Set(ctx context.Context, key string, value T) error {
	if err := p.store.Set(ctx, key, value); err != nil {
		return err
	}
	p.cache.Set(key, value)
	return nil
}

// Invalidate leaves the values that other processes keep where they are.
func (p inProcess[T]) Invalidate(ctx context.Context, key string) error {
	err := p.store.Invalidate(ctx, key)
	p.cache.Invalidate(key)
	return err
}

func (p inProcess[T]) Settings() string {
	return "10,000 entries, expiring a TTL after they were written"
}

func (p inProcess[T]) Close() error {
	p.cache.StopAllGoroutines()
	return p.store.Close()
}
