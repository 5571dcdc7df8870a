package stockade

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// isTransport reports whether an error says that no answer came: nothing is known about what the server did.
func isTransport(err error) bool {
	var reply redis.Error
	if isTimeout(err) {
		return true
	}
	return !errors.As(err, &reply) && !errors.Is(err, context.Canceled)
}

// isTimeout reports whether the time for an answer has passed.
func isTimeout(err error) bool {
	var net net.Error
	return errors.As(err, &net) && net.Timeout()
}

// isBroken reports whether a connection failed, so that another may serve at once.
func isBroken(err error) bool {
	return err != nil && isTransport(err) && !isTimeout(err) && !errors.Is(err, redis.ErrClosed)
}

// isDial reports whether a connection could not be made.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isPassing reports whether a server refused a request for a state that it leaves by itself.
func isPassing(err error) bool {
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) || redis.IsTryAgainError(err) ||
		redis.IsMasterDownError(err) || redis.IsMaxClientsError(err) || redis.IsNoReplicasError(err) || redis.IsOOMError(err) ||
		redis.HasErrorPrefix(err, "BUSY ") || redis.HasErrorPrefix(err, "MISCONF ") // a script that takes long, a full disk
}
