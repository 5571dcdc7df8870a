// Repository puts stockade before a method of a repository. The wrapped method has the same signature, so the code that
// calls it stays as it is.
//
//	go run ./examples/repository
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "repository-")
	if err != nil {
		log.Fatal(err)
	}
	server, err := miniredis.Run() // in your service: the Redis that you have
	if err == nil {
		err = run(context.Background(), dir, redis.NewClient(&redis.Options{Addr: server.Addr()}), os.Stdout)
	}
	if removed := os.RemoveAll(dir); err == nil {
		err = removed
	}
	if err != nil {
		log.Fatal("repository: ", err)
	}
}

func run(ctx context.Context, dir string, rdb *redis.Client, w io.Writer) error {
	defer rdb.Close()
	db, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	products, err := store.CreateProducts(ctx, db, 100, 20*time.Millisecond)
	if err != nil {
		return err
	}

	cache, err := stockade.New[store.Product](rdb, stockade.Options{Prefix: "product", NotFound: sql.ErrNoRows})
	if err != nil {
		return err
	}
	defer cache.Close()
	key := func(id int64) string { return fmt.Sprint(id) }
	find := stockade.Wrap(cache, key, products.Find)

	show := func(what string, id int64) {
		began := time.Now()
		product, err := find(ctx, id)
		took := time.Since(began).Round(10 * time.Microsecond)
		fmt.Fprintf(w, "%-27s stock %d, error %v; took %v, queries so far: %d\n", what, product.Stock, err, took, products.Queries())
	}
	show("the first call queries", 7)
	show("the second does not", 7)
	if err := errors.Join(products.Sell(ctx, 7), cache.Invalidate(ctx, key(7))); err != nil { // write, then invalidate
		return err
	}
	show("after a sale it does again", 7)
	show("a row that does not exist", 101)
	show("is remembered as absent", 101)
	return nil
}
