package middleware

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Who has waited for too long runs the handler itself, but one by one.
func TestAHungRunIsNoHerdAndNoDeadKey(t *testing.T) {
	var running, most atomic.Int64
	hangs := true
	bubble(t, Route{WaitTimeout: 2 * time.Second}, []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
		if hangs {
			hangs = false
			<-r.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(500 * time.Millisecond)
		answer(200, "body", "Cache-Control", "max-age=60")(w, r)
	}}, func(t *testing.T, site *site, _ *scripted) {
		leader := make(chan *httptest.ResponseRecorder, 1)
		go func() { leader <- site.do("GET", "/") }()
		synctest.Wait()
		begun := time.Now()
		codes := map[int]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				w := site.do("GET", "/")
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
				if w.Code == http.StatusServiceUnavailable && (w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store") {
					t.Errorf("a 503 without advice: %v", w.Header())
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("they were held up for %v", took)
		}
		if codes[200] < 3 || codes[200]+codes[503] != 50 || most.Load() != 1 {
			t.Errorf("got %v, %d at once", codes, most.Load())
		}
		if w := <-leader; w.Code != http.StatusGatewayTimeout {
			t.Errorf("the leader got %d", w.Code)
		}
		if took := time.Since(begun); took > 31*time.Second {
			t.Errorf("the leader waited for %v", took)
		}
	})
}

// A handler that does not heed its context keeps its goroutine, but not its client.
func TestAHandlerThatIgnoresItsContextIsGivenUp(t *testing.T) {
	bubble(t, Route{WaitTimeout: time.Minute}, []http.HandlerFunc{func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }},
		func(t *testing.T, site *site, _ *scripted) {
			begun := time.Now()
			if w := site.do("GET", "/"); w.Code != http.StatusGatewayTimeout {
				t.Errorf("got %d", w.Code)
			}
			if took := time.Since(begun); took > 34*time.Second {
				t.Errorf("it took %v", took)
			}
		})
}

func TestAWaiterLeavesWhenItsClientDoes(t *testing.T) {
	bubble(t, Route{}, []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Second)
		answer(200, "body", "Cache-Control", "max-age=60")(w, r)
	}}, func(t *testing.T, site *site, _ *scripted) {
		begun := time.Now()
		leader := make(chan time.Duration, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			site.doFor(ctx, "GET", "/")
			leader <- time.Since(begun)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		site.doFor(ctx, "GET", "/")
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the waiter took %v", took)
		}
		site.wantBody("body", "/")
		site.wantRuns("with a leader whose client left", 1)
		if took := <-leader; took < 5*time.Second { // the run goes on in its place
			t.Errorf("the leader took %v", took)
		}
	})
}
