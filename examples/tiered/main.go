// Tiered runs two instances of a service, A and B, each with a local tier before the Redis that they share. It shows
// what a hit takes in the tier and in Redis, for how long B serves an old value when A has changed it, and what both
// serve when Redis has stopped.
//
//	go run ./examples/tiered
//
// Everything that it prints was measured while it ran. It fails when a promise was not kept.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

const (
	firstID, lastID = 40, 49 // of the products that are read, each with 40 or more in stock
	ids             = lastID - firstID + 1

	batch = 100 // reads in the tier that are timed together: reading the clock takes a good part of what one takes
)

func main() {
	log.SetFlags(0)
	logging.Disable() // that Redis cannot be reached is what is shown
	dir, err := os.MkdirTemp("", "tiered-")
	if err != nil {
		log.Fatal(err)
	}
	server, err := miniredis.Run() // in your service: the Redis that you have
	if err == nil {
		full := size{local: 5000 * batch, remote: 5000, rounds: 200, outage: 2 * time.Second}
		_, err = run(context.Background(), dir, server, full, os.Stdout)
		server.Close()
	}
	if removed := os.RemoveAll(dir); err == nil {
		err = removed
	}
	if err != nil {
		log.Fatal("tiered: ", err)
	}
}

// size says how much is measured.
type size struct {
	local, remote int           // reads in the tier, in Redis
	rounds        int           // changes, each of one piece in stock
	outage        time.Duration // without Redis
}

// figures are what was measured.
type figures struct {
	local, remote hits
	changes       changes
	outage        outage
}

func run(ctx context.Context, dir string, server *miniredis.Miniredis, s size, w io.Writer) (f figures, err error) {
	db, err := store.Open(dir)
	if err != nil {
		return f, err
	}
	defer db.Close()
	products, err := store.CreateProducts(ctx, db, lastID, 0)
	if err != nil {
		return f, err
	}
	var instances []*instance
	defer func() {
		for _, in := range instances {
			err = cmp.Or(err, in.close())
		}
	}()
	tier := stockade.LocalOptions{Entries: 1000}
	for _, local := range []stockade.LocalOptions{tier, tier, {}} {
		in, err := newInstance(server.Addr(), local, products)
		if err != nil {
			return f, err
		}
		instances = append(instances, in)
	}
	a, b, without := instances[0], instances[1], instances[2]
	if err := listen(ctx, a, b); err != nil {
		return f, err
	}

	if f.local, err = readHits(ctx, a, s.local, batch); err != nil {
		return f, err
	}
	if f.remote, err = readHits(ctx, without, s.remote, 1); err != nil {
		return f, err
	}
	if f.changes, err = change(ctx, a, b, products, s.rounds); err != nil {
		return f, err
	}
	if f.outage, err = stop(ctx, server, []*instance{a, b}, products, s.outage); err != nil {
		return f, err
	}
	return f, errors.Join(f.write(w), f.check())
}

func (f figures) write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "A hit in the local tier asks Redis nothing. The times are those of one read, in the tier means of %d:\n", batch)
	fmt.Fprintln(table, "\thits\tround trips to Redis\tmedian\tp99\t")
	f.local.row(table, "local tier")
	f.remote.row(table, "Redis")
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(table, "\nA row changes and A invalidates it, %d times: %d of %d later reads of A are old, and B is told by a message:\n",
		len(f.changes.served), f.changes.old, f.changes.reads)
	f.changes.rows(table)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(table, "\nRedis has stopped. The tiers serve what they have until TTL + StaleFor, without a query:")
	f.outage.row(table)
	return table.Flush()
}

// check returns what does not hold of what the program says.
func (f figures) check() error {
	var broken []error
	if f.local.trips > 0 || f.local.local != uint64(f.local.reads) {
		broken = append(broken, fmt.Errorf("of %d reads the local tier served %d, with %d round trips to Redis", f.local.reads, f.local.local, f.local.trips))
	}
	if f.changes.old > 0 {
		broken = append(broken, fmt.Errorf("after Invalidate A served %d old values", f.changes.old))
	}
	if f.outage.queries > 0 || f.outage.failed == 0 {
		broken = append(broken, fmt.Errorf("without Redis there were %d database queries, and %d failures of Redis", f.outage.queries, f.outage.failed))
	}
	return errors.Join(broken...)
}

// instance is one process of the service: it shares nothing but Redis and the database.
type instance struct {
	client *redis.Client
	cache  *stockade.Cache[store.Product]
	find   func(ctx context.Context, id int64) (store.Product, error)
}

func newInstance(redisAddr string, local stockade.LocalOptions, products *store.Products) (*instance, error) {
	in := &instance{client: redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})}
	var err error
	in.cache, err = stockade.New[store.Product](in.client, stockade.Options{
		Prefix: "product", NotFound: sql.ErrNoRows, TTL: time.Minute, StaleFor: 10 * time.Minute, Local: local,
	})
	if err != nil {
		in.client.Close()
		return nil, err
	}
	in.find = stockade.Wrap(in.cache, key, products.Find)
	return in, nil
}

func (in *instance) close() error { return errors.Join(in.cache.Close(), in.client.Close()) }

func key(id int64) string { return strconv.FormatInt(id, 10) }

// listen returns when the instances hear of changes, which their first read begins. One that does not hear of them trusts
// its tier for a second, and then asks Redis again.
func listen(ctx context.Context, instances ...*instance) error {
	const trusted, patience = time.Second, 10 * time.Second
	began, trips := time.Now(), uint64(0)
	for asked := began; time.Since(asked) < trusted+trusted/10; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			return fmt.Errorf("after %v an instance does not hear of changes", patience)
		}
		now := uint64(0)
		for _, in := range instances {
			if err := in.readAll(ctx); err != nil {
				return err
			}
			now += in.cache.Stats().Trips
		}
		if now != trips {
			asked, trips = time.Now(), now
		}
	}
	return nil
}

func (in *instance) readAll(ctx context.Context) error {
	for id := int64(firstID); id <= lastID; id++ {
		if _, err := in.find(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
