package peers

import (
	"context"
	"time"
)

// locked lets one caller in the fleet at a time look whether a missing key is still missing, and load it: how a lock of
// a library is used against stampedes.
type locked[T any] struct {
	store[T]
	lock     func(ctx context.Context, name string) (unlock func(), err error)
	settings string
}

func (p locked[T]) Get(ctx context.Context, key string, load Load[T]) (T, error) {
	if value, found, err := p.find(ctx, key); found || err != nil {
		return value, err
	}
	unlock, err := p.lock(ctx, p.prefix+":"+key+":lock")
	if err != nil {
		var none T
		return none, err
	}
	defer unlock()
	return p.through(ctx, key, load)
}

func (p locked[T]) Settings() string { return p.settings }

// outlive is how long a lock lives that nobody renews: as usual, or twice a long load.
func outlive(load, usual time.Duration) time.Duration { return max(2*load, usual) }
