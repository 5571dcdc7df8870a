package peers

import (
	"net/http"
	"time"

	"github.com/go-chi/stampede"
)

// httpStampede keeps responses in the process and does not read Cache-Control. A response is shared whatever query, method
// or host was asked for, and a panic of the handler reaches all who wait.
type httpStampede struct{ ttl time.Duration }

func openHTTPStampede(c Config) (HTTPPeer, error) { return httpStampede{c.TTL}, nil }

func (p httpStampede) Handler(next http.Handler) http.Handler {
	const responses = 512 // of its documentation
	return stampede.Handler(responses, p.ttl)(next)
}

func (httpStampede) Settings() string { return "512 responses, as documented" }
func (httpStampede) Close() error     { return nil }
