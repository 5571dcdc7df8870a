package peers

import (
	"context"

	"github.com/viccon/sturdyc"
)

// sturdy keeps values in the process for the TTL, and asks Redis before it loads. What it finds there it keeps for another
// TTL. It writes to Redis in the background, in no order, as JSON. Its goroutine that evicts never ends: there is no Close.
type sturdy[T any] struct {
	cache   *sturdyc.Client[T]
	storage sturdyStorage
}

// The sizes are those of the library's documentation; there are no defaults.
const (
	sturdyEntries = 10_000
	sturdyShards  = 10
	sturdyEvicted = 10 // percent, when it is full
)

func openSturdyc[T any](c Config) (Peer[T], error) {
	storage := sturdyStorage{store: newStore[[]byte](c)}
	return &sturdy[T]{
		sturdyc.New[T](sturdyEntries, sturdyShards, c.TTL, sturdyEvicted, sturdyc.WithDistributedStorage(storage)),
		storage,
	}, nil
}

func (p *sturdy[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	return p.cache.GetOrFetch(ctx, key, sturdyc.FetchFn[T](load))
}

// Set makes a Get load the value, as only the library knows how it is stored. As after any load, it may return before the
// value is in Redis, and what an Invalidate removes at that moment is written after it.
func (p *sturdy[T]) Set(ctx context.Context, key string, value T) error {
	if err := p.Invalidate(ctx, key); err != nil {
		return err
	}
	_, err := p.Get(ctx, key, func(context.Context) (T, error) { return value, nil })
	return err
}

// Invalidate leaves the values that other processes keep where they are.
func (p *sturdy[T]) Invalidate(ctx context.Context, key string) error {
	err := p.storage.Invalidate(ctx, key)
	p.cache.Delete(key)
	return err
}

func (p *sturdy[T]) Settings() string {
	return "WithDistributedStorage; 10,000 entries in 10 shards, 10 % evicted, as documented; no early refreshes"
}

func (p *sturdy[T]) Close() error { return p.storage.Close() }

// sturdyStorage is Redis to the library, which takes no errors.
type sturdyStorage struct {
	sturdyc.DistributedStorage // nil: nobody asks for a batch
	store[[]byte]
}

func (s sturdyStorage) Get(ctx context.Context, key string) ([]byte, bool) {
	record, found, err := s.find(ctx, key)
	return record, found && err == nil
}

func (s sturdyStorage) Set(ctx context.Context, key string, record []byte) {
	_ = s.store.Set(ctx, key, record)
}
