package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// serve serves the page to a browser until ctx ends. The instances take turns, as they do behind a load balancer.
func serve(ctx context.Context, s settings, sales *sales, stdout io.Writer) (err error) {
	site, all, err := newSite(s, sales)
	defer func() {
		for _, in := range all {
			err = cmp.Or(err, in.close())
		}
	}()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "open http://localhost:%d\n", listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: site, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newSite returns what a browser sees. The instances, also with an error, are the caller's to close.
func newSite(s settings, sales *sales) (site http.Handler, all []*instance, err error) {
	pages := &pages{sales, 10 * time.Second, time.Minute}
	for range instances {
		in, err := newInstance(s.redis, "http:report", pages, true)
		if err != nil {
			return nil, all, err
		}
		all = append(all, in)
	}
	var turn atomic.Uint64
	next := func() *instance { return all[turn.Add(1)%instances] }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { next().ServeHTTP(w, r) })
	mux.HandleFunc("POST /purge", func(w http.ResponseWriter, r *http.Request) {
		// The URL as clients send it. Whichever instance is told, all hear of it.
		if err := next().mw.Purge(r.Context(), "http://"+r.Host+"/report"); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux, all, nil
}
