package herd

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
	"github.com/stockade-cache/stockade/bench/wire"
)

// Setup is what a process is told first.
type Setup struct {
	Contestant string
	Config     peers.Config // without Dial, which is the process's own
	Size       int          // of a value in bytes; 16 at least
	Struct     bool         // values are structs with a text of Size, not bytes
	HTTP       bool         // the contestant is one for HTTP, and the process serves pages
	Origin     string       // where it listens
	Meter      string       // the Redis where loads are counted
	MeterKey   string
}

// Order is a task for a process.
type Order struct {
	Task     string
	Params   []byte
	Deadline time.Time // zero: none
}

// worker is what the tasks of a process work with.
type worker struct {
	cache
	site
	origin   *origin.Client
	meter    *redis.Client
	meterKey string
	sent     wire.Counter // commands to the Redis under test
}

// Serve is the main function of a process of a fleet: it does what it is told on its standard input, until that ends.
func Serve() error {
	logging.Disable() // an outage is measured, not reported line by line
	w := &worker{}
	running, stop := context.WithCancel(context.Background())
	defer stop()
	server := rpc.NewServer()
	if err := server.RegisterName("Process", &processService{w, running}); err != nil {
		return err
	}
	server.ServeConn(pipes{os.Stdin, os.Stdout})
	stop()
	return w.close()
}

type processService struct {
	worker  *worker
	running context.Context
}

// Do does a task.
func (s *processService) Do(order Order, reply *[]byte) (err error) {
	do, ok := tasks[order.Task]
	if !ok {
		return fmt.Errorf("no task is called %q", order.Task)
	}
	ctx := s.running
	if !order.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, order.Deadline)
		defer cancel()
	}
	*reply, err = do(ctx, s.worker, order.Params)
	return err
}

// opening is the first task.
var opening = define("open", func(ctx context.Context, w *worker, s Setup) (settings string, err error) {
	if w.origin, err = origin.Dial(s.Origin); err != nil {
		return "", err
	}
	w.meter, w.meterKey = redis.NewClient(&redis.Options{Addr: s.Meter}), s.MeterKey
	s.Config.Dial = w.sent.Dial
	if s.HTTP {
		w.site, err = openSite(s.Contestant, s.Config, w.load, s.Size)
		return w.site.settings, err
	}
	if s.Struct {
		w.cache, err = openCache(s.Contestant, s.Config, w.load, newProduct(s.Size), itemOfProduct)
	} else {
		w.cache, err = openCache(s.Contestant, s.Config, w.load, func(i origin.Item) []byte { return i.Encode(s.Size) }, origin.Decode)
	}
	return w.cache.settings, err
})

// load reads from the origin. It is counted twice, here and there, so that a lost count shows.
func (w *worker) load(ctx context.Context, id int) (origin.Item, error) {
	if err := w.meter.Incr(context.WithoutCancel(ctx), w.meterKey).Err(); err != nil {
		return origin.Item{}, fmt.Errorf("meter: %w", err)
	}
	return w.origin.Load(ctx, id)
}

func (w *worker) close() error {
	var err error
	for _, end := range []func() error{w.site.close, w.cache.close} {
		if end != nil {
			err = errors.Join(err, end(), w.origin.Close(), w.meter.Close())
		}
	}
	return err
}

// cache is a contestant for items, whatever it stores.
type cache struct {
	get        func(ctx context.Context, id int) (origin.Item, error)
	set        func(ctx context.Context, item origin.Item) error
	invalidate func(ctx context.Context, id int) error
	settings   string
	close      func() error
}

func openCache[T any](name string, c peers.Config, load func(context.Context, int) (origin.Item, error), pack func(origin.Item) T, unpack func(T) (origin.Item, error)) (cache, error) {
	peer, err := peers.Open[T](name, c)
	if err != nil {
		return cache{}, err
	}
	loadOf := func(id int) peers.Load[T] {
		return func(ctx context.Context) (T, error) {
			item, err := load(ctx, id)
			if err != nil {
				var none T
				return none, err
			}
			return pack(item), nil
		}
	}
	loads := make([]peers.Load[T], origin.Rows) // made beforehand, as the keys are
	for id := range loads {
		loads[id] = loadOf(id)
	}
	return cache{
		get: func(ctx context.Context, id int) (origin.Item, error) {
			var load peers.Load[T]
			if id < len(loads) {
				load = loads[id]
			} else {
				load = loadOf(id)
			}
			value, err := peer.Get(ctx, keyOf(id), load)
			if err != nil {
				return origin.Item{}, err
			}
			item, err := unpack(value)
			if err == nil && item.ID != id {
				err = fmt.Errorf("asked for item %d, got %d", id, item.ID)
			}
			return item, err
		},
		set:        func(ctx context.Context, item origin.Item) error { return peer.Set(ctx, keyOf(item.ID), pack(item)) },
		invalidate: func(ctx context.Context, id int) error { return peer.Invalidate(ctx, keyOf(id)) },
		settings:   peer.Settings(),
		close:      peer.Close,
	}, nil
}

// keyOf names an item. The names are made beforehand where they are many: the caches are measured, not this.
func keyOf(id int) string {
	if id < len(keys()) {
		return keys()[id]
	}
	return fmt.Sprintf("item:%d", id)
}

var keys = sync.OnceValue(func() []string {
	names := make([]string, origin.Rows)
	for id := range names {
		names[id] = fmt.Sprintf("item:%d", id)
	}
	return names
})

// product is a value that has to be decoded.
type product struct {
	ID, Version int
	Name        string
	Price       float64
	Tags        []string
	Description string
	Updated     time.Time
}

func newProduct(size int) func(origin.Item) product {
	description := strings.Repeat("x", size)
	return func(i origin.Item) product {
		return product{
			ID: i.ID, Version: i.Version, Name: "a product", Price: 9.5, Tags: []string{"new", "red", "round"},
			Description: description, Updated: time.Unix(1_700_000_000, 0).UTC(),
		}
	}
}

func itemOfProduct(p product) (origin.Item, error) {
	return origin.Item{ID: p.ID, Version: p.Version}, nil
}
