package peers

import "net/http"

type httpNone struct{}

func openHTTPNone(Config) (HTTPPeer, error) { return httpNone{}, nil }

func (httpNone) Handler(next http.Handler) http.Handler { return next }
func (httpNone) Settings() string                       { return "" }
func (httpNone) Close() error                           { return nil }
