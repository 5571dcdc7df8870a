package middleware

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A handler that answers with a status that there is not panics where it does so, as without us: nothing of it is stored.
func TestStatusThatThereIsNot(t *testing.T) {
	for _, status := range []int{-1, 0, 42, 1000} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var m meter
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
				defer m.run()()
				w.Header().Set("Cache-Control", "max-age=60")
				if m.runs.Load() == 1 {
					w.WriteHeader(status)
				}
				_, _ = io.WriteString(w, "a page")
			})
			if r := f.get("/"); r.err == nil {
				t.Errorf("got %d %q", r.status, r.body)
			}
			f.get("/").want(t, 200, "a page")
		})
	}
}
