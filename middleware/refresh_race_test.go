package middleware

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A stale page is being renewed in the background for a request that does not want it and has another run: the race
// detector tells when the two share what is of one of them.
func TestRefreshAndAnotherRunOfOneRequest(t *testing.T) {
	var m meter
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		defer m.run()()
		w.Header().Set("Cache-Control", "max-age=1, stale-while-revalidate=60")
		w.Header().Set("Age", "1") // stale at once
		_, _ = fmt.Fprint(w, "page ", m.runs.Load())
	}, func(o *Options) { o.ClientControl = true })
	for range 50 {
		if r := f.get("/", "Cache-Control", "no-cache"); r.err != nil || r.status != 200 {
			t.Errorf("got %d, error %v", r.status, r.err)
		}
		f.get("/")
	}
}
