package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/extra/redlock"
	"github.com/stockade-cache/stockade/internal/locktest"
)

// TestLock is the suite of every lock, on five fakes and on five real servers.
func TestLock(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, start func(t *testing.T, test func(*testing.T, fleet)), ttl time.Duration) {
		locktest.Run(t, func(t *testing.T, test func(*testing.T, locktest.Servers)) {
			start(t, func(t *testing.T, f fleet) {
				admins := clients(t, f)
				lose := func(t *testing.T) {
					for _, admin := range admins {
						if err := admin.FlushAll(t.Context()).Err(); err != nil {
							t.Fatal(err)
						}
					}
				}
				lose(t)
				test(t, locktest.Servers{
					TTL: ttl,
					New: func(t *testing.T) locktest.Locker {
						return tested{newLocker(t, clients(t, f), redlock.Options{TTL: ttl})}
					},
					Lose: lose,
					// Unlock does not wait for the servers beyond a majority.
					Free: func(string) bool { return len(holding(context.Background(), admins, lockKey)) < 3 },
				})
			})
		})
	}
	t.Run("fake", func(t *testing.T) { run(t, bubble, 200*time.Millisecond) })
	t.Run("real", func(t *testing.T) {
		t.Parallel() // it waits most of the time
		f := reals(t, 5)
		run(t, func(t *testing.T, test func(*testing.T, fleet)) { test(t, f) }, 800*time.Millisecond)
	})
}

// tested shows a Locker as the suite wants it.
type tested struct{ *redlock.Locker }

func (l tested) TryLock(ctx context.Context, name string) (locktest.Lock, error) {
	return shown(l.Locker.TryLock(ctx, name))
}

func (l tested) Lock(ctx context.Context, name string) (locktest.Lock, error) {
	return shown(l.Locker.Lock(ctx, name))
}

func shown(k *redlock.Lock, err error) (locktest.Lock, error) {
	if err != nil {
		return nil, err
	}
	return k, nil
}
