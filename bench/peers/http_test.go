package peers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestAllHTTP(t *testing.T) {
	fake := redistest.Fake(t)
	for _, c := range AllHTTP() {
		t.Run(c.Name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			conf := config(fake, "pages")
			conf.TTL = 300 * time.Millisecond
			p, err := OpenHTTP(c.Name, conf)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("settings: %q", p.Settings())
			shares := c.Name != "none"
			var runs atomic.Int64
			server := httptest.NewServer(p.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				time.Sleep(20 * time.Millisecond)
				_, _ = io.WriteString(w, "page")
			})))
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { wantPage(t, server) })
			}
			wg.Wait()
			wantPage(t, server)
			if n := runs.Load(); (n == 1) != shares {
				t.Errorf("%d runs", n)
			}
			seen := runs.Load()
			redistest.Eventually(t, 3*time.Second, "the page expires", func() bool {
				wantPage(t, server)
				return runs.Load() > seen
			})
			server.Close()
			server.Client().CloseIdleConnections()
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			leavesNothing(t, "", before)
		})
	}
}

func wantPage(t *testing.T, server *httptest.Server) {
	t.Helper()
	response, err := server.Client().Get(server.URL + "/page")
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || string(body) != "page" {
		t.Errorf("got %d, %q, %v", response.StatusCode, body, err)
	}
}
