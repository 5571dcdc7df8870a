package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
)

var (
	// errLockClosed is what a holder learns whose Locker is closed.
	errLockClosed = fmt.Errorf("%w: %w", stockade.ErrLockLost, stockade.ErrClosed)
	errNoLock     = errors.New("redlock: the *Lock is nil: it was not taken")
	// errTooLate says that a vote came when the caller, or the lock's validity, had ended.
	errTooLate = errors.New("the vote came too late")
)

// isRefusal reports whether a server, or the client, will answer so again.
func isRefusal(err error) bool {
	var (
		reply   redis.Error
		network net.Error
	)
	switch {
	case errors.Is(err, redis.ErrClosed):
		return true
	case errors.As(err, &network) && network.Timeout(), !errors.As(err, &reply):
		return false
	}
	passes := redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) || redis.IsTryAgainError(err) ||
		redis.IsMasterDownError(err) || redis.IsMaxClientsError(err) || redis.IsNoReplicasError(err) || redis.IsOOMError(err) ||
		redis.HasErrorPrefix(err, "BUSY ") || redis.HasErrorPrefix(err, "MISCONF ") // a script that takes long, a full disk
	return !passes
}

// isBroken reports whether a connection failed, so that another may serve at once. One that cannot be made is not.
func isBroken(err error) bool {
	var (
		reply   redis.Error
		network net.Error
		op      *net.OpError
	)
	switch {
	case err == nil, errors.Is(err, errTooLate), errors.As(err, &reply), errors.Is(err, redis.ErrClosed), errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &network) && network.Timeout():
		return false
	default:
		return true
	}
}

// endedError is the error of a call whose context has ended: it Is ctx.Err and its cause.
func endedError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case errors.Is(cause, stockade.ErrClosed):
		return stockade.ErrClosed
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// lockedError is endedError of a call that waited, the last time because of failure unless that is nil.
func lockedError(ctx context.Context, failure error) error {
	err := endedError(ctx)
	switch {
	case err == stockade.ErrClosed:
		return err
	case errors.Is(failure, stockade.ErrRedis):
		return fmt.Errorf("%w: %w: %w", stockade.ErrLocked, err, failure)
	default:
		return fmt.Errorf("%w: %w", stockade.ErrLocked, err)
	}
}

// redisError is the error of a question that too few servers answered, or all of them too late.
func redisError(failures []error) error {
	if len(failures) == 0 {
		failures = []error{errTooLate}
	}
	return fmt.Errorf("%w: %w", stockade.ErrRedis, errors.Join(failures...))
}

// isRefused reports whether so many servers refused that asking again is in vain: without them there is no majority.
func isRefused(failures []error, servers int) bool {
	refusals := 0
	for _, err := range failures {
		if isRefusal(err) {
			refusals++
		}
	}
	return refusals >= majority(servers)
}

// refusedError is such a refusal.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }
