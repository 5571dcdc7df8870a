package bloom_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/bloom"
)

// A made-up key costs no query. A new one is written to the source, then added, then invalidated.
func Example() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	products := map[string]string{"7": "boots", "8": "hat"}

	filter, err := bloom.New(rdb, bloom.Options{Prefix: "product", Keys: 1_000_000})
	if err != nil {
		panic(err)
	}
	ids := slices.Values([]string{"7", "8"}) // SELECT id FROM product, row by row
	if err := filter.Rebuild(ctx, bloom.Keys(ids), nil); err != nil {
		panic(err)
	}

	cache, err := stockade.New[string](rdb, stockade.Options{Prefix: "product", Guard: filter})
	if err != nil {
		panic(err)
	}
	defer cache.Close()
	get := func(id string) {
		name, err := cache.Get(ctx, id, func(context.Context) (string, error) {
			fmt.Println("query", id)
			return products[id], nil
		})
		fmt.Println(name, errors.Is(err, stockade.ErrNotFound))
	}
	get("7")
	get("made-up")

	products["9"] = "gloves"
	if err := filter.Add(ctx, "9"); err != nil {
		panic(err) // try again until it succeeds, as with Invalidate
	}
	if err := cache.Invalidate(ctx, "9"); err != nil {
		panic(err)
	}
	get("9")
	// Output:
	// query 7
	// boots false
	//  true
	// query 9
	// gloves false
}
