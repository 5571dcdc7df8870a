package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/examples/internal/store"
	"github.com/stockade-cache/stockade/extra/prom"
)

const (
	products = 1000
	hot      = 20 // of them are read
)

// fleet is a service: its instances share nothing but Redis and the database.
type fleet struct {
	size
	repository *store.Products
	caches     []*stockade.Cache[store.Product]
	log        *slog.Logger
	reads      atomic.Int64 // calls of Get that have returned
	closers    []func() error
}

func openFleet(ctx context.Context, s size, registry prometheus.Registerer, log *slog.Logger) (f *fleet, err error) {
	f = &fleet{size: s, log: log}
	defer func() {
		if err != nil {
			_ = f.close()
		}
	}()
	server, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, func() error { server.Close(); return nil })
	server.ClockTTL(true) // keys expire as time goes by
	dir, err := os.MkdirTemp("", "observe-")
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, func() error { return os.RemoveAll(dir) })
	db, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, db.Close)
	if f.repository, err = store.CreateProducts(ctx, db, products, s.load); err != nil {
		return nil, err
	}
	for i := range s.instances {
		if err := f.add(server.Addr(), fmt.Sprintf("product-%d", i+1), registry); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// add opens an instance whose metrics have a name.
func (f *fleet) add(redisAddr, name string, registry prometheus.Registerer) error {
	metrics, err := prom.New(prom.Options{Name: name})
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	f.closers = append(f.closers, client.Close)
	cache, err := stockade.New[store.Product](client, stockade.Options{
		Prefix: "product", TTL: f.ttl, StaleFor: f.ttl, NotFound: sql.ErrNoRows,
		RedisTimeout: f.redisTimeout, LeaseTTL: 4 * f.redisTimeout,
		Observer: metrics.Observer().And(logging(f.log.With("cache", name))),
	})
	if err != nil {
		return err
	}
	f.closers = append(f.closers, cache.Close)
	metrics.Watch(cache)
	f.caches = append(f.caches, cache)
	return registry.Register(metrics)
}

// get reads one product.
func (f *fleet) get(ctx context.Context, cache *stockade.Cache[store.Product], id int64) error {
	_, err := cache.Get(ctx, fmt.Sprint(id), func(ctx context.Context) (store.Product, error) { return f.repository.Find(ctx, id) })
	f.reads.Add(1)
	return err
}

// work lets all callers read, and one product a second change, until the context ends.
func (f *fleet) work(ctx context.Context) {
	var callers sync.WaitGroup
	for _, cache := range f.caches {
		for range f.callers {
			callers.Go(func() {
				for pause(ctx, rand.N(200*time.Millisecond)) {
					if err := f.get(ctx, cache, 1+rand.Int64N(hot)); err != nil && ctx.Err() == nil {
						f.log.Error("read", "err", err)
					}
				}
			})
		}
	}
	callers.Go(func() {
		for pause(ctx, time.Second) {
			id := 1 + rand.Int64N(hot)
			if err := f.caches[0].Invalidate(ctx, fmt.Sprint(id)); err != nil && ctx.Err() == nil {
				f.log.Error("invalidate: the old value may be served", "id", id, "err", err)
			}
		}
	})
	callers.Wait()
}

// pause reports whether the context has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// close closes what was opened last first.
func (f *fleet) close() error {
	var errs []error
	for i := len(f.closers) - 1; i >= 0; i-- {
		errs = append(errs, f.closers[i]())
	}
	return errors.Join(errs...)
}
