// Penetration lets made-up ids rain on a repository: first a few that come again and again, then ids that are new each
// time. It shows the database queries without a cache, with a cache, which remembers what does not exist, and with a
// bloom filter before that, which knows what does.
//
//	go run ./examples/penetration
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"text/tabwriter"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/bloom"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

const (
	rows     = 5000
	clients  = 50
	repeated = 100 // made-up ids of the first attack
)

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "penetration-")
	if err != nil {
		log.Fatal(err)
	}
	server, err := miniredis.Run() // in your service: the Redis that you have
	if err == nil {
		err = run(context.Background(), dir, redis.NewClient(&redis.Options{Addr: server.Addr()}), 20_000, os.Stdout)
	}
	if removed := os.RemoveAll(dir); err == nil {
		err = removed
	}
	if err != nil {
		log.Fatal("penetration: ", err)
	}
}

type find func(ctx context.Context, id int64) (store.Product, error)

func run(ctx context.Context, dir string, rdb *redis.Client, requests int, w io.Writer) error {
	defer rdb.Close()
	db, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	products, err := store.CreateProducts(ctx, db, rows, 0)
	if err != nil {
		return err
	}
	filter, err := bloom.New(rdb, bloom.Options{Prefix: "guarded", Keys: rows})
	if err != nil {
		return err
	}
	if err := filter.Rebuild(ctx, keys(ctx, products), nil); err != nil {
		return err
	}
	cached := func(prefix string, guard stockade.Guard) (find, func() error, error) {
		cache, err := stockade.New[store.Product](rdb, stockade.Options{Prefix: prefix, NotFound: sql.ErrNoRows, Guard: guard})
		if err != nil {
			return nil, nil, err
		}
		return stockade.Wrap(cache, key, products.Find), cache.Close, nil
	}
	remembering, stop, err := cached("product", nil)
	if err != nil {
		return err
	}
	defer stop()
	guarded, stop, err := cached("guarded", filter)
	if err != nil {
		return err
	}
	defer stop()

	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%d requests for ids that do not exist, twice: %d ids again and again, then ids that are new each time\n\n", requests, repeated)
	fmt.Fprintln(table, "\tqueries: the same ids\tnew ids\tkeys in Redis\t")
	for _, way := range []struct {
		name string
		find find
	}{{"no cache", products.Find}, {"absent entries", remembering}, {"bloom filter", guarded}} {
		before := rdb.DBSize(ctx).Val()
		same, err := attack(ctx, products, way.find, requests, func() int64 { return rows + 1 + rand.Int64N(repeated) })
		if err != nil {
			return err
		}
		fresh, err := attack(ctx, products, way.find, requests, func() int64 { return rows + 1 + rand.Int64N(1<<50) })
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", way.name, same, fresh, rdb.DBSize(ctx).Val()-before)
	}
	return table.Flush()
}

func key(id int64) string { return strconv.FormatInt(id, 10) }

// keys reads the keys of all products when it is asked for the first, and tells if that fails.
func keys(ctx context.Context, products *store.Products) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ids, err := products.IDs(ctx)
		if err != nil {
			yield("", err)
			return
		}
		for _, id := range ids {
			if !yield(key(id), nil) {
				return
			}
		}
	}
}

// attack asks for ids that do not exist, and returns the database queries that it took.
func attack(ctx context.Context, products *store.Products, find find, requests int, id func() int64) (queries int64, err error) {
	before := products.Queries()
	var wg sync.WaitGroup
	failed := make(chan error, clients)
	for range clients {
		wg.Go(func() {
			for range requests / clients {
				if _, err := find(ctx, id()); !errors.Is(err, sql.ErrNoRows) {
					failed <- fmt.Errorf("an id that does not exist: got %w", err)
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err = <-failed:
	default:
	}
	return products.Queries() - before, err
}
