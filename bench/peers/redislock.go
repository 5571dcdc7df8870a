package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
)

// openRedislock chooses what the library has no default for from its examples: the lifetime, the pause between tries, and
// the minute of one that has a deadline. The limit of three tries of another would fail all who wait for a load of more
// than 300 ms.
func openRedislock[T any](c Config) (Peer[T], error) {
	const (
		pause   = 100 * time.Millisecond
		patient = time.Minute
	)
	ttl := outlive(c.Load, time.Second)
	s := newStore[T](c)
	locks := redislock.New(s.rdb)
	lock := func(ctx context.Context, name string) (func(), error) {
		waiting, cancel := context.WithTimeout(ctx, patient)
		defer cancel()
		held, err := locks.Obtain(waiting, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)})
		if err != nil {
			return nil, err
		}
		// The value is good whether or not the lock is still there, and the caller may have left.
		return func() { _ = held.Release(context.WithoutCancel(ctx)) }, nil
	}
	settings := fmt.Sprintf(
		"the lock lives for %v (a second, or twice a load) and is tried every %v for %v: from its examples, as there are no defaults",
		ttl, pause, patient,
	)
	return locked[T]{s, lock, settings}, nil
}
