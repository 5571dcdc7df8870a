package redlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/redlock"
)

// Five servers that know nothing of each other: the lock outlives two of them.
func Example() {
	var servers []*miniredis.Miniredis
	var clients []redis.UniversalClient
	for range 5 {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			panic(err)
		}
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer rdb.Close()
		servers, clients = append(servers, server), append(clients, rdb)
	}
	locks, err := redlock.New(clients, redlock.Options{Prefix: "cron"})
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	servers[0].Close()
	servers[1].Close()
	err = locks.Do(context.Background(), "report", func(ctx context.Context) error {
		_, err := locks.TryLock(ctx, "report")
		fmt.Println("another:", errors.Is(err, stockade.ErrLocked))
		fmt.Println("the report is made while ctx lives:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// another: true
	// the report is made while ctx lives: true
	// <nil>
}
