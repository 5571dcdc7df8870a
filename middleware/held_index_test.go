package middleware

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// The local tier holds the index of a URL for longer than its first page is fresh: that page is not served from there.
func TestHeldIndexDoesNotKeepItsFirstPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		f := unserved(t, redistest.Fake(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
			defer m.run()()
			w.Header().Set("Cache-Control", "max-age=1")
			w.Header().Set("Vary", "Accept-Language")
			w.Header().Set("Etag", fmt.Sprintf(`"%d"`, m.runs.Load()))
			_, _ = fmt.Fprint(w, "page ", m.runs.Load())
		}, func(o *Options) { o.Local = stockade.LocalOptions{Entries: 100}; o.RedisTimeout = 0 })
		for i := range 5 {
			record(f.handler, request(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).want(t, 200, fmt.Sprint("page ", i+1))
			time.Sleep(2 * time.Second)
		}
	})
}
