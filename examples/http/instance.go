package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/middleware"
)

const instances = 2

// instance is one process of the service: it shares nothing but Redis and the database.
type instance struct {
	http.Handler
	client *redis.Client
	mw     *middleware.Middleware
	server *http.Server
	url    string
}

// newInstance returns an instance that does not listen yet.
func newInstance(options *redis.Options, prefix string, pages *pages, shared bool) (*instance, error) {
	own := *options
	in := &instance{client: redis.NewClient(&own)}
	var err error
	if in.mw, err = middleware.New(in.client, middleware.Options{Prefix: prefix}); err != nil {
		in.client.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	report, private := http.Handler(http.HandlerFunc(pages.report)), http.Handler(http.HandlerFunc(pages.private))
	if shared {
		report, private = in.mw.Handler(report), in.mw.Handler(private)
	}
	mux.Handle("GET /report", report)
	mux.Handle("GET /private", private)
	in.Handler = mux
	return in, nil
}

// listen starts the instance's server.
func (in *instance) listen() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	in.url = "http://" + listener.Addr().String()
	in.server = &http.Server{Handler: in, ReadHeaderTimeout: 10 * time.Second}
	go in.server.Serve(listener) // ends with close
	return nil
}

// close closes the server first: the middleware is closed when nobody asks any more.
func (in *instance) close() (err error) {
	if in.server != nil {
		err = in.server.Close()
	}
	return cmp.Or(err, in.mw.Close(), in.client.Close())
}

// startInstances starts all instances. Those that it returns, also with an error, are the caller's to close.
func startInstances(ctx context.Context, options *redis.Options, prefix string, pages *pages, shared bool) (all []*instance, err error) {
	for range instances {
		in, err := newInstance(options, prefix, pages, shared)
		if err != nil {
			return all, err
		}
		all = append(all, in)
		if err := errors.Join(in.client.Ping(ctx).Err(), in.listen()); err != nil {
			return all, fmt.Errorf("start an instance: %w", err)
		}
	}
	return all, nil
}
