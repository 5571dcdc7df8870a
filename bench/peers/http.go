package peers

import (
	"fmt"
	"net/http"
)

// HTTPPeer is a way to share the responses of an expensive handler, in one process of a service.
type HTTPPeer interface {
	Handler(next http.Handler) http.Handler
	Settings() string // what is not the contestant's default, for the report
	Close() error
}

// HTTPContestant is a [Contestant] for HTTP. The TTL is for responses that do not say how long they are fresh. None has a
// setting for NoJitter.
type HTTPContestant struct {
	Name  string
	About string
	Open  func(Config) (HTTPPeer, error)
}

// AllHTTP returns the contestants for HTTP, in the order of the report.
func AllHTTP() []HTTPContestant {
	return []HTTPContestant{
		{"none", "the handler alone", openHTTPNone},
		{"go-chi/stampede", "Handler of github.com/go-chi/stampede: responses in the process, by path and body alone", openHTTPStampede},
		{"stockade", "github.com/stockade-cache/stockade/middleware: responses in Redis, by the rules of HTTP caching", openHTTPStockade},
	}
}

// OpenHTTP opens the contestant for HTTP of that name.
func OpenHTTP(name string, c Config) (HTTPPeer, error) {
	for _, contestant := range AllHTTP() {
		if contestant.Name == name {
			return contestant.Open(c)
		}
	}
	return nil, fmt.Errorf("no contestant for HTTP is called %q", name)
}
