package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

func openRedsync[T any](c Config) (Peer[T], error) {
	const usual = 8 * time.Second // its default
	s := newStore[T](c)
	locks := redsync.New(goredis.NewPool(s.rdb))
	var settings string
	var options []redsync.Option
	if expiry := outlive(c.Load, usual); expiry != usual {
		options = append(options, redsync.WithExpiry(expiry))
		settings = fmt.Sprintf("the lock lives for %v, twice a load", expiry)
	}
	lock := func(ctx context.Context, name string) (func(), error) {
		mutex := locks.NewMutex(name, options...)
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		// The value is good whether or not the lock is still there, and the caller may have left.
		return func() { _, _ = mutex.Unlock() }, nil
	}
	return locked[T]{s, lock, settings}, nil
}
