package herd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
	"github.com/stockade-cache/stockade/bench/peers"
)

// site is a contestant for HTTP before pages that take a load each.
type site struct {
	url      string
	settings string
	close    func() error
}

// pagesFresh is how long pages say that they are fresh.
const pagesFresh = time.Minute

// openSite serves /page/ID, which is an item of size bytes, and /ready, which is no page and takes no load.
func openSite(name string, c peers.Config, load func(context.Context, int) (origin.Item, error), size int) (site, error) {
	peer, err := peers.OpenHTTP(name, c)
	if err != nil {
		return site{}, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return site{}, errors.Join(err, peer.Close())
	}
	routes := http.NewServeMux()
	routes.Handle("GET /page/{id}", peer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(r.PathValue("id"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		item, err := load(r.Context(), id)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Cache-Control", fmt.Sprintf("max-age=%d", int(pagesFresh.Seconds())))
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(item.Encode(size))
	})))
	routes.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return site{
		url: "http://" + listener.Addr().String(), settings: peer.Settings(),
		close: func() error {
			err := server.Close()
			<-served
			return errors.Join(err, peer.Close())
		},
	}, nil
}

// locating says where a process serves.
var locating = define("url", func(_ context.Context, w *worker, _ struct{}) (string, error) { return w.site.url, nil })
