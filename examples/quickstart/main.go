// Quickstart shows a cache stampede and its end. Several instances of a service, each with its own Redis client and its
// own cache, read products from a real SQLite database file: first with plain cache-aside, then with stockade. It
// needs nothing installed: without -redis it starts a small Redis of its own inside this process.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -redis redis://localhost:6379 -instances 8 -callers 100 -load 50ms
//
// Everything that it prints was measured while it ran.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/stockade-cache/stockade/examples/internal/display"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

const products = 5000 // rows of the table

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // what the client would log, the error says
	size, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(2)
	}
	_, err = run(ctx, size, os.Stdout, display.IsTerminal(os.Stdout))
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "quickstart: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// size is what the flags say.
type size struct {
	redis     *redis.Options // nil: embedded
	instances int
	callers   int           // of each instance
	load      time.Duration // of each query
}

func parse(args []string, output io.Writer) (size, error) {
	var s size
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() {
		fmt.Fprintln(output, "usage: go run ./examples/quickstart [flags]")
		flags.PrintDefaults()
	}
	address := flags.String("redis", "", "`URL` of a Redis server, such as redis://localhost:6379 (default: one inside this process)")
	flags.IntVar(&s.instances, "instances", 4, "instances of the service, each with a client and a cache of its own")
	flags.IntVar(&s.callers, "callers", 250, "concurrent callers of each instance")
	flags.DurationVar(&s.load, "load", 100*time.Millisecond, "how long each database query is held")
	if err := flags.Parse(args); err != nil {
		return size{}, err
	}
	switch {
	case flags.NArg() > 0:
		return size{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.instances < 1 || s.instances > 64:
		return size{}, fmt.Errorf("-instances is %d: want 1 to 64", s.instances)
	case s.callers < 1 || s.callers > 10_000:
		return size{}, fmt.Errorf("-callers is %d: want 1 to 10000", s.callers)
	case s.load < time.Millisecond || s.load > 10*time.Second:
		return size{}, fmt.Errorf("-load is %v: want 1ms to 10s", s.load)
	}
	if *address != "" {
		options, err := redis.ParseURL(*address)
		if err != nil {
			return size{}, fmt.Errorf("-redis is %q: want redis://[user:password@]host:port[/db] (%v)", *address, err)
		}
		s.redis = options
	}
	return s, nil
}

// run measures both scenarios, each with both ways to read, and prints what it measured.
func run(ctx context.Context, s size, stdout io.Writer, terminal bool) (results []result, err error) {
	server := "the Redis inside this process"
	if s.redis == nil {
		embedded, err := miniredis.Run()
		if err != nil {
			return nil, err
		}
		defer embedded.Close()
		embedded.ClockTTL(true) // keys expire as time goes by
		s.redis = &redis.Options{Addr: embedded.Addr()}
	} else {
		server = "the Redis at " + s.redis.Addr
		if err := reach(ctx, s.redis); err != nil {
			return nil, fmt.Errorf("no Redis answers at %s: %w", s.redis.Addr, err)
		}
	}

	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	fmt.Fprintf(stdout, "creating a SQLite database of %d products\n", products)
	repository, err := store.CreateProducts(ctx, db, products, s.load)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stdout, "%d instances with %d callers each, on %s; each database query is held for %v\n\n",
		s.instances, s.callers, server, s.load)

	progress := &display.Progress{W: stdout, Terminal: terminal}
	for _, scenario := range []scenario{coldKey(), expiringKey(s.load)} {
		fmt.Fprintf(stdout, "%s: %s\n", scenario.name, scenario.what)
		for _, way := range []way{cacheAside, withStockade} {
			result, err := measure(ctx, s, scenario, way, repository, progress)
			if err != nil {
				return results, fmt.Errorf("%s, %s: %w", scenario.name, way.name, err)
			}
			results = append(results, result)
		}
	}
	fmt.Fprintln(stdout)
	return results, writeTable(stdout, results)
}

// reach asks a server for one answer.
func reach(ctx context.Context, options *redis.Options) error {
	own := *options
	own.MaxRetries = -1
	client := redis.NewClient(&own)
	defer client.Close()
	return client.Ping(ctx).Err()
}
