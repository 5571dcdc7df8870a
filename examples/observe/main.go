// Observe shows what an operator sees of a cache: several instances of a service read hot products from a real SQLite
// database, one product a second is changed, and the metrics are at /metrics, with a line in the log for what is worth one.
// It needs nothing installed: a small Redis runs inside this process.
//
//	go run ./examples/observe
//	curl -s localhost:8090/metrics | grep '^stockade_'
//
// docs/operations.md explains the metrics. Each instance has a name of its own here, since all are in one process; in a
// service of one cache the name is the cache's, and Prometheus tells the instances apart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "observe:", err)
		os.Exit(2)
	}
	if err := run(ctx, s, slog.New(slog.NewTextHandler(os.Stdout, nil))); err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
		os.Exit(1)
	}
}

// size is what the flags say, and what only a test that must not hurry changes.
type size struct {
	listen    string
	instances int
	callers   int           // of each instance
	load      time.Duration // of each query

	ttl          time.Duration
	redisTimeout time.Duration // zero: the cache's own
}

func parse(args []string, output io.Writer) (size, error) {
	s := size{ttl: 2 * time.Second}
	flags := flag.NewFlagSet("observe", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&s.listen, "listen", "localhost:8090", "`address` of /metrics")
	flags.IntVar(&s.instances, "instances", 4, "instances of the service, each with a client and a cache of its own")
	flags.IntVar(&s.callers, "callers", 50, "concurrent callers of each instance")
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
	return s, nil
}

// run serves the metrics of a fleet at work until the context ends.
func run(ctx context.Context, s size, log *slog.Logger) (err error) {
	registry := prometheus.NewRegistry()
	f, err := openFleet(ctx, s, registry, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("metrics", "url", fmt.Sprintf("http://%s/metrics", listener.Addr()))
	f.work(ctx)
	closed := server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return closed
}
