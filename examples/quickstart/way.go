package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

// find reads one product.
type find func(ctx context.Context, id int64) (store.Product, error)

// way is a way to read products through Redis. Its open is called for each instance.
type way struct {
	name string
	open func(rdb *redis.Client, prefix string, ttl time.Duration, load find) (get find, close func() error, err error)
}

// cacheAside is the usual code: look, and on a miss query and store.
var cacheAside = way{"without stockade", func(rdb *redis.Client, prefix string, ttl time.Duration, load find) (find, func() error, error) {
	get := func(ctx context.Context, id int64) (store.Product, error) {
		var product store.Product
		key := fmt.Sprintf("%s:%d", prefix, id)
		stored, err := rdb.Get(ctx, key).Bytes()
		if err == nil {
			return product, json.Unmarshal(stored, &product)
		}
		if !errors.Is(err, redis.Nil) {
			return product, err
		}
		if product, err = load(ctx, id); err != nil {
			return product, err
		}
		if stored, err = json.Marshal(product); err != nil {
			return product, err
		}
		return product, rdb.Set(ctx, key, stored, ttl).Err()
	}
	return get, func() error { return nil }, nil
}}

// withStockade leaves the miss to the cache.
var withStockade = way{"with stockade", func(rdb *redis.Client, prefix string, ttl time.Duration, load find) (find, func() error, error) {
	cache, err := stockade.New[store.Product](rdb, stockade.Options{Prefix: prefix, TTL: ttl})
	if err != nil {
		return nil, nil, err
	}
	get := func(ctx context.Context, id int64) (store.Product, error) {
		return cache.Get(ctx, fmt.Sprint(id), func(ctx context.Context) (store.Product, error) { return load(ctx, id) })
	}
	return get, cache.Close, nil
}}
