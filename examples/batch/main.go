// Batch builds a product list page of a hundred products: one by one, and all at once with GetMany, cold and warm. It
// shows the database queries, the round trips to Redis and the time of each.
//
//	go run ./examples/batch
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

const (
	perPage = 100
	hold    = 5 * time.Millisecond // of a query
)

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "batch-")
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
		log.Fatal("batch: ", err)
	}
}

func run(ctx context.Context, dir string, rdb *redis.Client, w io.Writer) error {
	defer rdb.Close()
	var trips roundTrips
	rdb.AddHook(&trips)
	db, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	products, err := store.CreateProducts(ctx, db, 10*perPage, hold)
	if err != nil {
		return err
	}
	cache, err := stockade.New[store.Product](rdb, stockade.Options{
		Prefix: "product", NotFound: sql.ErrNoRows,
		RedisTimeout: time.Second, LeaseTTL: 4 * time.Second, // the server shares this process: when that is busy it is no outage
	})
	if err != nil {
		return err
	}
	defer cache.Close()

	// A batch loader gets the keys that are missing, and returns what the database has of them.
	load := func(ctx context.Context, keys []string) (map[string]store.Product, error) {
		ids := make([]int64, len(keys))
		for i, key := range keys {
			id, err := strconv.ParseInt(key, 10, 64)
			if err != nil {
				return nil, err
			}
			ids[i] = id
		}
		found, err := products.FindMany(ctx, ids)
		values := make(map[string]store.Product, len(found))
		for id, product := range found {
			values[key(id)] = product
		}
		return values, err
	}
	one := stockade.Wrap(cache, key, products.Find)
	oneByOne := func(ids []int64) (int, error) {
		n := 0
		for _, id := range ids {
			if _, err := one(ctx, id); err == nil {
				n++
			} else if !errors.Is(err, sql.ErrNoRows) {
				return n, err
			}
		}
		return n, nil
	}
	atOnce := func(ids []int64) (int, error) {
		keys := make([]string, len(ids))
		for i, id := range ids {
			keys[i] = key(id)
		}
		page, err := cache.GetMany(ctx, keys, load)
		return len(page), err
	}

	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "page\thow\tproducts\tqueries\tround trips\ttook\t")
	for _, step := range []struct {
		what, how string
		first     int64
		page      func([]int64) (int, error)
	}{
		{"cold", "one by one", 1, oneByOne},
		{"warm", "one by one", 1, oneByOne},
		{"cold", "GetMany", 1 + perPage, atOnce},
		{"warm", "GetMany", 1 + perPage, atOnce},
		{"half warm", "GetMany", 1 + perPage + perPage/2, atOnce},
		{"the last, half of it not there", "GetMany", 1 + 10*perPage - perPage/2, atOnce},
	} {
		ids := make([]int64, perPage)
		for i := range ids {
			ids[i] = step.first + int64(i)
		}
		queries, sent, began := products.Queries(), trips.n.Load(), time.Now()
		n, err := step.page(ids)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%v\t\n", step.what, step.how, n,
			products.Queries()-queries, trips.n.Load()-sent, time.Since(began).Round(10*time.Microsecond))
	}
	return table.Flush()
}

func key(id int64) string { return strconv.FormatInt(id, 10) }

// roundTrips counts those of a client, without what greets a new connection.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) count(cmd redis.Cmder) {
	if name := cmd.Name(); name != "hello" && name != "client" {
		r.n.Add(1)
	}
}

func (r *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { r.count(cmd); return next(ctx, cmd) }
}

func (r *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { r.count(cmds[0]); return next(ctx, cmds) }
}
