package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stockade-cache/stockade"
)

// The user has what the README asks for except the right to a channel. It is made anew each time, the same.
const (
	pollingUser     = "stockade-polling"
	pollingPassword = "polling"
	pollingRights   = "~* resetchannels +get +mget +set +del +append +getrange +setrange +pexpire +pttl +time +ping +publish " +
		"+subscribe +unsubscribe +eval +evalsha"
)

// openStockadePolling has a client that may not subscribe: no message ever comes.
func openStockadePolling[T any](c Config) (Peer[T], error) {
	if err := makePollingUser(c); err != nil {
		return nil, fmt.Errorf("a user without channels, for whom the server needs access control lists: %w", err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.Redis, Dialer: c.Dial, Username: pollingUser, Password: pollingPassword})
	return openOurs[T](c, rdb, stockade.Options{}, "a user without rights to channels")
}

func makePollingUser(c Config) (err error) {
	admin := newClient(c)
	defer func() { err = errors.Join(err, admin.Close()) }()
	command := []any{"ACL", "SETUSER", pollingUser, "on", ">" + pollingPassword}
	for right := range strings.FieldsSeq(pollingRights) {
		command = append(command, right)
	}
	return admin.Do(context.Background(), command...).Err()
}
