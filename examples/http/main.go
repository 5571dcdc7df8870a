// Http puts the middleware before a page that is expensive to make: a report over a SQLite table that is as large as it
// takes for its query to run for -report. Two instances of a web service, each with an http.Server, a Redis client and a
// Middleware of its own, get the load of -clients at once, first without the middleware, then with it: when the page is
// not stored, and while it expires again and again. It needs nothing installed: without -redis it starts a small
// Redis of its own inside this process.
//
//	go run ./examples/http
//	go run ./examples/http -redis redis://localhost:6379 -clients 500 -report 300ms
//	go run ./examples/http -listen :8080
//
// The last one serves the page to a browser instead, with what became of each request.
//
// Everything that it prints was measured while it ran. It fails when a promise was not kept.
//
// mw.Handler takes a handler and returns one, as the routers want it. With chi it is written:
//
//	r := chi.NewRouter()
//	r.Use(mw.Handler)
//	r.Get("/report", report)
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // what the client would log, the error says
	s, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(2)
	}
	_, err = run(ctx, s, os.Stdout, display.IsTerminal(os.Stdout))
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "http: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

// settings are what the flags say.
type settings struct {
	redis   *redis.Options // nil: embedded
	clients int
	report  time.Duration // how long the page takes to make
	timeout time.Duration // of the clients
	listen  string        // empty: measure
}

func parse(args []string, output io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() {
		fmt.Fprintln(output, "usage: go run ./examples/http [flags]")
		flags.PrintDefaults()
	}
	address := flags.String("redis", "", "`URL` of a Redis server, such as redis://localhost:6379 (default: one inside this process)")
	flags.IntVar(&s.clients, "clients", 300, "clients that ask at once")
	flags.DurationVar(&s.report, "report", 800*time.Millisecond, "how long the page should take to make")
	flags.DurationVar(&s.timeout, "timeout", 10*time.Second, "for how long a client waits for an answer")
	flags.StringVar(&s.listen, "listen", "", "`address` on which to serve the page to a browser, such as :8080, instead of measuring")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	switch {
	case flags.NArg() > 0:
		return settings{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.clients < 1 || s.clients > 5000:
		return settings{}, fmt.Errorf("-clients is %d: want 1 to 5000", s.clients)
	case s.report < time.Millisecond || s.report > 10*time.Second:
		return settings{}, fmt.Errorf("-report is %v: want 1ms to 10s", s.report)
	case s.timeout < s.report || s.timeout > time.Hour:
		return settings{}, fmt.Errorf("-timeout is %v: want at least the %v of -report, and at most 1h", s.timeout, s.report)
	}
	if *address != "" {
		options, err := redis.ParseURL(*address)
		if err != nil {
			return settings{}, fmt.Errorf("-redis is %q: want redis://[user:password@]host:port[/db] (%v)", *address, err)
		}
		s.redis = options
	}
	return s, nil
}

// run measures both scenarios, each without and with the middleware, and prints what it measured. With -listen it serves
// the page until ctx ends.
func run(ctx context.Context, s settings, stdout io.Writer, terminal bool) (results []result, err error) {
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

	dir, err := os.MkdirTemp("", "http-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	fmt.Fprintf(stdout, "creating a SQLite table over which a report takes about %v\n", s.report)
	sales, err := createSales(ctx, db, s.report)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stdout, "it has %d rows, and the report took %v\n", sales.rows, display.Rounded(sales.took))
	if s.listen != "" {
		return nil, serve(ctx, s, sales, stdout)
	}

	fmt.Fprintf(stdout, "%d instances on %s; %d clients that wait for up to %v\n\n", instances, server, s.clients, s.timeout)
	progress := &display.Progress{W: stdout, Terminal: terminal}
	for _, scenario := range []scenario{coldPage(), expiringPage(sales.took)} {
		fmt.Fprintf(stdout, "%s: %s\n", scenario.name, scenario.what)
		for _, shared := range []bool{false, true} {
			result, err := measure(ctx, s, scenario, shared, sales, progress)
			if err != nil {
				return results, fmt.Errorf("%s, %s: %w", scenario.name, wayName(shared), err)
			}
			results = append(results, result)
		}
	}
	fmt.Fprintln(stdout)
	if err := writeTable(stdout, results, s.timeout); err != nil {
		return results, err
	}
	return results, check(results)
}

// reach asks a server for one answer.
func reach(ctx context.Context, options *redis.Options) error {
	own := *options
	own.MaxRetries = -1
	client := redis.NewClient(&own)
	defer client.Close()
	return client.Ping(ctx).Err()
}
