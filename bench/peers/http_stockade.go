package peers

import (
	"errors"
	"net/http"

	"github.com/redis/go-redis/v9"
	"github.com/stockade-cache/stockade/middleware"
)

// httpOurs is the middleware of this library.
type httpOurs struct {
	rdb        *redis.Client
	middleware *middleware.Middleware
}

func openHTTPStockade(c Config) (HTTPPeer, error) {
	rdb := newClient(c)
	mw, err := middleware.New(rdb, middleware.Options{Prefix: c.Prefix, Route: middleware.Route{TTL: c.TTL}})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return httpOurs{rdb, mw}, nil
}

func (p httpOurs) Handler(next http.Handler) http.Handler { return p.middleware.Handler(next) }
func (httpOurs) Settings() string                         { return "" }
func (p httpOurs) Close() error                           { return errors.Join(p.middleware.Close(), p.rdb.Close()) }
