package stockade_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/stockade-cache/stockade"
)

// Product is a row of a database.
type Product struct {
	ID   string
	Name string
}

// database stands for what is slow.
type database struct{ queries int }

func (db *database) Product(_ context.Context, id string) (Product, error) {
	db.queries++
	if id == "0" {
		return Product{}, sql.ErrNoRows
	}
	return Product{ID: id, Name: "product " + id}, nil
}

// Products returns the rows that there are.
func (db *database) Products(_ context.Context, ids []string) (map[string]Product, error) {
	db.queries++
	found := map[string]Product{}
	for _, id := range ids {
		if id != "0" {
			found[id] = Product{ID: id, Name: "product " + id}
		}
	}
	return found, nil
}

// client returns a client of a Redis that lives in this process.
func client() (*redis.Client, func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return rdb, func() { _ = rdb.Close(); server.Close() }
}

func ExampleCache_Get() {
	rdb, stop := client()
	defer stop()
	db := &database{}

	cache, err := stockade.New[Product](rdb, stockade.Options{Prefix: "product", TTL: time.Minute, NotFound: sql.ErrNoRows})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	ctx := context.Background()
	for range 3 {
		product, err := cache.Get(ctx, "7", func(ctx context.Context) (Product, error) {
			return db.Product(ctx, "7")
		})
		fmt.Println(product.Name, err)
	}
	_, err = cache.Get(ctx, "0", func(ctx context.Context) (Product, error) { return db.Product(ctx, "0") })
	fmt.Println(errors.Is(err, sql.ErrNoRows), errors.Is(err, stockade.ErrNotFound))
	fmt.Println(db.queries, "queries")
	// Output:
	// product 7 <nil>
	// product 7 <nil>
	// product 7 <nil>
	// true true
	// 2 queries
}

// One round trip for what is stored, one query for what is not.
func ExampleCache_GetMany() {
	rdb, stop := client()
	defer stop()
	db := &database{}
	cache, err := stockade.New[Product](rdb, stockade.Options{Prefix: "product"})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	ctx := context.Background()
	for _, page := range [][]string{{"7", "8", "0"}, {"7", "8", "9"}, {"9", "8", "7"}} {
		products, err := cache.GetMany(ctx, page, db.Products)
		var some *stockade.KeysError // which keys failed; products has the others
		fmt.Println(len(products), "products,", errors.As(err, &some), db.queries, "queries")
	}
	// Output:
	// 2 products, false 1 queries
	// 3 products, false 2 queries
	// 3 products, false 2 queries
}

// Basket has a slice, which callers that get the same value would share.
type Basket struct{ Items []string }

// Clone gives every caller a basket of its own.
func (b Basket) Clone() Basket { return Basket{slices.Clone(b.Items)} }

func ExampleLocalOptions() {
	rdb, stop := client()
	defer stop()
	cache, err := stockade.New[Basket](rdb, stockade.Options{
		Prefix: "basket",
		Local:  stockade.LocalOptions{Entries: 10_000}, // hits need no network
	})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	for range 2 {
		basket, err := cache.Get(context.Background(), "7", func(context.Context) (Basket, error) {
			return Basket{[]string{"tea", "milk"}}, nil
		})
		fmt.Println(basket.Items, err)
		basket.Items[0] = "mine"
	}
	// Output:
	// [tea milk] <nil>
	// [tea milk] <nil>
}

func ExampleWrap() {
	rdb, stop := client()
	defer stop()
	db := &database{}
	cache, err := stockade.New[Product](rdb, stockade.Options{Prefix: "product"})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	find := stockade.Wrap(cache, func(id string) string { return id }, db.Product)

	for range 3 {
		product, err := find(context.Background(), "7")
		fmt.Println(product.Name, err)
	}
	fmt.Println(db.queries, "queries")
	// Output:
	// product 7 <nil>
	// product 7 <nil>
	// product 7 <nil>
	// 1 queries
}

// Write to the source first, then invalidate. When Invalidate fails, old values may be served until their TTL: try again.
func ExampleCache_Invalidate() {
	rdb, stop := client()
	defer stop()
	cache, err := stockade.New[string](rdb, stockade.Options{Prefix: "name"})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	ctx := context.Background()
	name := "old"
	load := func(context.Context) (string, error) { return name, nil }
	fmt.Println(cache.Get(ctx, "7", load))
	name = "new"
	if err := cache.Invalidate(ctx, "7"); err != nil {
		fmt.Println("try again:", err)
	}
	fmt.Println(cache.Get(ctx, "7", load))
	// Output:
	// old <nil>
	// new <nil>
}

// A loader may choose lifetimes, and revalidate what is kept.
func ExampleCache_Fetch() {
	rdb, stop := client()
	defer stop()
	cache, err := stockade.New[string](rdb, stockade.Options{Prefix: "page", KeepFor: time.Hour})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	load := func(_ context.Context, old *stockade.Entry[string]) (stockade.Entry[string], error) {
		if old != nil && old.ETag == "v1" {
			return stockade.Entry[string]{TTL: time.Minute}, stockade.ErrNotModified
		}
		return stockade.Entry[string]{Value: "page", ETag: "v1", TTL: 10 * time.Second}, nil
	}
	for range 3 {
		e, err := cache.Fetch(context.Background(), "/", load)
		fmt.Println(e.Value, e.ETag, e.Source, err)
		if e.Source == stockade.Hit {
			_ = cache.Expire(context.Background(), "/")
		}
	}
	// Output:
	// page v1 loaded <nil>
	// page v1 hit <nil>
	// page v1 loaded <nil>
}

func ExampleCache_With() {
	rdb, stop := client()
	defer stop()
	cache, err := stockade.New[string](rdb, stockade.Options{Prefix: "page"})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	news := cache.With(stockade.Policy{TTL: 5 * time.Second, StaleFor: time.Minute})
	fmt.Println(news.Get(context.Background(), "news", func(context.Context) (string, error) { return "today", nil }))
	// Output: today <nil>
}

// Code that uses the cache is tested on a Redis that lives in the test. Its clock stands until it is moved.
func Example_test() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil { // in a test: server := miniredis.RunT(t)
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	cache, err := stockade.New[int](rdb, stockade.Options{Prefix: "n", TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	defer cache.Close()

	loads := 0
	load := func(context.Context) (int, error) { loads++; return loads, nil }
	fmt.Println(cache.Get(context.Background(), "k", load))
	fmt.Println(cache.Get(context.Background(), "k", load))
	server.FastForward(time.Minute)
	fmt.Println(cache.Get(context.Background(), "k", load))
	// Output:
	// 1 <nil>
	// 1 <nil>
	// 2 <nil>
}

// In a bubble time passes by itself, and at once. It stands still while a socket is open, so the server does not listen;
// and the process dies when the client asks a resolver or waits for its pool, so the address is a number and the pool large.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:0", PoolSize: 1000,
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		defer rdb.Close()
		cache, err := stockade.New[int](rdb, stockade.Options{Prefix: "n", TTL: time.Minute, StaleFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()

		loads := 0
		get := func(want int) {
			t.Helper()
			got, err := cache.Get(t.Context(), "k", func(context.Context) (int, error) { loads++; return loads, nil })
			if got != want || err != nil {
				t.Errorf("got %d, %v, want %d", got, err, want)
			}
		}
		get(1)
		time.Sleep(time.Minute)
		get(1)          // stale, while it is refreshed
		synctest.Wait() // until it is
		get(2)
	})
}
