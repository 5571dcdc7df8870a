package middleware

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// scripted answers with one response after the other, and then with the last again.
type scripted struct {
	answers []http.HandlerFunc

	mu   sync.Mutex
	next int           // guarded by mu
	seen []http.Header // of the requests; guarded by mu
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Header.Clone())
	answer := s.answers[min(s.next, len(s.answers)-1)]
	s.next++
	s.mu.Unlock()
	answer(w, r)
}

// answer writes a status, fields and a body.
func answer(status int, body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// bubble runs a test on the fake with a site whose handler answers as scripted.
func bubble(t *testing.T, route Route, answers []http.HandlerFunc, f func(t *testing.T, site *site, s *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: answers}
		f(t, newSite(t, redistest.Fake(t).Client(t), route, s.ServeHTTP), s)
	})
}

// RFC 5861 3, and that the age grows while the Date stays (RFC 9111 4.2.3, 5.1).
func TestServingStaleWhileRevalidating(t *testing.T) {
	bubble(t, Route{}, []http.HandlerFunc{
		answer(200, "old", "Cache-Control", "max-age=10, stale-while-revalidate=60"),
		answer(200, "new", "Cache-Control", "max-age=10, stale-while-revalidate=60"),
	}, func(t *testing.T, site *site, _ *scripted) {
		site.wantBody("old", "/")
		date := time.Now().UTC().Format(http.TimeFormat)
		time.Sleep(8 * time.Second)
		if w := site.wantBody("old", "/"); w.Header().Get("Age") != "8" || w.Header().Get("Cache-Status") != "stockade; hit; ttl=2" || w.Header().Get("Date") != date {
			t.Errorf("fresh: got %v", w.Header())
		}
		time.Sleep(30 * time.Second)
		if w := site.wantBody("old", "/"); w.Header().Get("Age") != "38" || w.Header().Get("Cache-Status") != "stockade; hit; ttl=-28" {
			t.Errorf("stale: got %v", w.Header())
		}
		synctest.Wait()
		site.wantRuns("with the refresh", 2)
		site.wantBody("new", "/")
		time.Sleep(71 * time.Second)
		site.wantBody("new", "/")
		site.wantRuns("after the window", 1)
	})
}

// Meziantou.Framework#2824: not for a 404 and its like. #3024: no validator is needed. RFC 5861 4.
func TestServingStaleIfError(t *testing.T) {
	for status, served := range map[int]bool{500: true, 502: true, 503: true, 504: true, 501: false, 400: false, 403: false, 404: false, 410: false} {
		bubble(t, Route{}, []http.HandlerFunc{
			answer(200, "old", "Cache-Control", "max-age=10, stale-if-error=60"), answer(status, "failed"), answer(status, "failed"),
			answer(status, "failed"), answer(200, "new", "Cache-Control", "max-age=10"),
		}, func(t *testing.T, site *site, _ *scripted) {
			site.wantBody("old", "/")
			time.Sleep(30 * time.Second)
			if !served {
				if w := site.wantBody("failed", "/"); w.Code != status {
					t.Errorf("%d: got %d", status, w.Code)
				}
				return
			}
			w := site.wantBody("old", "/")
			if w.Code != 200 || w.Header().Get("Age") != "30" || w.Header().Get("Cache-Status") != "stockade; fwd=stale; fwd-status="+strconv.Itoa(status)+"; ttl=-20" {
				t.Errorf("%d: got %d %v", status, w.Code, w.Header())
			}
			site.wantRuns("with the failure", 2)
			time.Sleep(time.Second / 2)
			if w := site.wantBody("old", "/"); w.Header().Get("Age") != "30" { // while it is asked again in the background
				t.Errorf("%d: got %v", status, w.Header())
			}
			synctest.Wait()
			site.wantRuns("in the background", 1)
			time.Sleep(10 * time.Second)
			site.wantBody("old", "/")
			time.Sleep(10 * time.Second)
			site.wantBody("new", "/")
		})
	}
}

func TestStaleIfErrorEnds(t *testing.T) {
	bubble(t, Route{StaleIfError: time.Minute}, []http.HandlerFunc{answer(200, "old", "Cache-Control", "max-age=10"), answer(503, "failed")},
		func(t *testing.T, site *site, _ *scripted) {
			site.wantBody("old", "/")
			for range 4 {
				time.Sleep(15 * time.Second)
				site.wantBody("old", "/")
			}
			time.Sleep(9999500 * time.Microsecond) // half a millisecond is left
			site.wantBody("old", "/")
			time.Sleep(15 * time.Second)
			site.wantBody("failed", "/")
		})
}

func TestStaleIsNotServedWhereItIsForbidden(t *testing.T) {
	for _, directive := range []string{"must-revalidate", "proxy-revalidate", "s-maxage=10", "no-cache"} {
		bubble(t, Route{StaleIfError: time.Hour, StaleWhileRevalidate: time.Hour}, []http.HandlerFunc{
			answer(200, "old", "Cache-Control", "max-age=10, stale-if-error=60, stale-while-revalidate=60, "+directive, "Etag", `"1"`), answer(503, "failed"),
		}, func(t *testing.T, site *site, _ *scripted) {
			site.wantBody("old", "/")
			time.Sleep(20 * time.Second)
			if w := site.wantBody("failed", "/"); w.Code != 503 {
				t.Errorf("%s: got %d", directive, w.Code)
			}
		})
	}
}

func TestStaleIfTheHandlerPanicsOrTakesTooLong(t *testing.T) {
	for name, failing := range map[string]http.HandlerFunc{
		"panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"hangs": func(_ http.ResponseWriter, r *http.Request) { time.Sleep(5 * time.Minute) },
		"gives up": func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Route{WaitTimeout: time.Minute}, []http.HandlerFunc{answer(200, "old", "Cache-Control", "max-age=10, stale-if-error=600"), failing},
				func(t *testing.T, site *site, _ *scripted) {
					site.wantBody("old", "/")
					time.Sleep(20 * time.Second)
					begun := time.Now()
					site.wantBody("old", "/")
					if took := time.Since(begun); took > 34*time.Second {
						t.Errorf("it took %v", took)
					}
				})
		})
	}
}
