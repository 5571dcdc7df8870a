package middleware

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// RFC 9111 4.3.4 and 3.2. souin#794: a client that asks without a condition never gets the 304.
func TestAStalePageIsValidated(t *testing.T) {
	for name, validator := range map[string][2]string{"Etag": {"Etag", `"1"`}, "Last-Modified": {"Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Route{}, []http.HandlerFunc{
				answer(200, "body", "Cache-Control", "max-age=10", "X-Old", "1", "X-Both", "1", validator[0], validator[1]),
				answer(304, "", "Cache-Control", "max-age=20", "X-Both", "2", "Content-Length", "0"),
				answer(200, "other", "Cache-Control", "max-age=10"),
			}, func(t *testing.T, site *site, s *scripted) {
				site.wantBody("body", "/", "If-None-Match: \"theirs\"")
				time.Sleep(15 * time.Second)
				w := site.wantBody("body", "/")
				h := w.Header()
				if w.Code != 200 || h.Get("X-Old") != "1" || h.Get("X-Both") != "2" || h.Get("Age") != "0" || h.Get("Content-Length") != "4" ||
					h.Get("Cache-Status") != "stockade; fwd=stale; fwd-status=304; ttl=20" {
					t.Errorf("validated: got %d %v", w.Code, h)
				}
				if seen := s.seen[0]; seen.Get("If-None-Match") != "" {
					t.Errorf("the first run had a condition: %v", seen)
				}
				if seen := s.seen[1]; seen.Get("If-None-Match") != "" != (name == "Etag") || seen.Get("If-Modified-Since") != "" != (name != "Etag") {
					t.Errorf("the second run had not the page's validator: %v", seen)
				}
				time.Sleep(15 * time.Second)
				if h := site.wantBody("body", "/").Header(); h.Get("Age") != "15" || h.Get("X-Both") != "2" {
					t.Errorf("stored: got %v", h)
				}
				site.wantRuns("so far", 2)
				time.Sleep(15 * time.Second)
				site.wantBody("other", "/")
			})
		})
	}
}

func TestAPageIsKeptForKeepForAfterItsFreshness(t *testing.T) {
	for _, c := range []struct {
		keep      time.Duration
		after     time.Duration
		validates bool
	}{{0, 10 * time.Minute, true}, {0, 11 * time.Minute, false}, {time.Hour, time.Hour, true}, {-1, 11 * time.Second, false}} {
		bubble(t, Route{KeepFor: c.keep}, []http.HandlerFunc{answer(200, "body", "Cache-Control", "max-age=10", "Etag", `"1"`)},
			func(t *testing.T, site *site, s *scripted) {
				site.do("GET", "/")
				time.Sleep(c.after)
				site.do("GET", "/")
				if got := s.seen[1].Get("If-None-Match") != ""; got != c.validates {
					t.Errorf("KeepFor %v, after %v: validated: %v", c.keep, c.after, got)
				}
			})
	}
}

// RFC 9111 5.2.2.4: no use of such a page without the handler's word, for each request; nobody waits for another's.
func TestNoCacheIsValidatedByEveryRequest(t *testing.T) {
	for _, control := range []string{"no-cache", "max-age=60, no-cache", "max-age=0"} {
		t.Run(control, func(t *testing.T) {
			slow := func(next http.HandlerFunc) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Second); next(w, r) }
			}
			bubble(t, Route{}, []http.HandlerFunc{
				answer(200, "body", "Cache-Control", control, "Etag", `"1"`),
				slow(answer(304, "", "Etag", `"1"`)),
			}, func(t *testing.T, site *site, s *scripted) {
				site.wantBody("body", "/")
				begun := time.Now()
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						if w := site.wantBody("body", "/"); w.Code != 200 || w.Header().Get("Age") != "0" {
							t.Errorf("got %d %v", w.Code, w.Header())
						}
					})
				}
				wg.Wait()
				site.wantRuns("one for each", 11)
				if took := time.Since(begun); took >= 2*time.Second {
					t.Errorf("they waited for each other: %v", took)
				}
				if w := site.do("GET", "/", `If-None-Match: "1"`); w.Code != 304 {
					t.Errorf("a client that has it got %d", w.Code)
				}
				s.answers[1] = answer(200, "changed", "Cache-Control", "max-age=60")
				site.wantBody("changed", "/")
				site.wantBody("changed", "/") // the old page is out of the way, and this is stored
				site.runs.Store(0)
				site.wantBody("changed", "/")
				site.wantRuns("then", 0)
			})
		})
	}
}

func TestConditionsOfClientsAreAnsweredFromAPage(t *testing.T) {
	const modified = "Sat, 01 Jan 2000 00:00:00 GMT"
	bubble(t, Route{}, []http.HandlerFunc{answer(200, "body", "Cache-Control", "max-age=60", "Etag", `"1"`, "Last-Modified", modified, "Content-Language", "de")},
		func(t *testing.T, site *site, s *scripted) {
			for _, when := range []string{"own run", "hit"} {
				w := site.do("GET", "/", `If-None-Match: W/"1"`)
				if h := w.Header(); w.Code != 304 || w.Body.Len() != 0 || h.Get("Etag") != `"1"` || h.Get("Cache-Control") == "" ||
					h["Content-Length"] != nil || h["Content-Type"] != nil || h["Content-Language"] != nil {
					t.Errorf("%s: got %d %v", when, w.Code, h)
				}
			}
			site.wantRuns("both", 1)
			for field, want := range map[string]int{
				`If-None-Match: "2"`: 200, `If-None-Match: "2", "1"`: 304, "If-None-Match: *": 304,
				"If-Modified-Since: " + modified: 304, "If-Modified-Since: Fri, 31 Dec 1999 23:59:59 GMT": 200, "If-Modified-Since: yesterday": 200,
			} {
				if w := site.do("GET", "/", field); w.Code != want {
					t.Errorf("%s: got %d, want %d", field, w.Code, want)
				}
			}
			if w := site.do("GET", "/", `If-None-Match: "2"`, "If-Modified-Since: "+modified); w.Code != 200 { // RFC 9110 13.2.2
				t.Errorf("If-None-Match does not come first: got %d", w.Code)
			}
			if w := site.do("HEAD", "/", `If-None-Match: "1"`); w.Code != 304 {
				t.Errorf("HEAD: got %d", w.Code)
			}
		})
}

func TestHeadIsAnsweredFromAGet(t *testing.T) {
	for _, vary := range []string{"", "X-Any"} {
		bubble(t, Route{}, []http.HandlerFunc{answer(200, "body", "Cache-Control", "max-age=60", "Vary", vary)}, func(t *testing.T, site *site, _ *scripted) {
			// On its own it is shared too, but never answers a GET.
			for range 2 {
				if w := site.do("HEAD", "/"); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "4" {
					t.Errorf("HEAD: got %d %v %q", w.Code, w.Header(), w.Body)
				}
			}
			site.wantRuns("HEAD", 1)
			site.wantBody("body", "/")
			site.wantRuns("GET", 1)
			time.Sleep(30 * time.Second)
			if w := site.do("HEAD", "/"); w.Header().Get("Age") != "30" && w.Header().Get("Content-Length") != "4" {
				t.Errorf("from the GET: got %v", w.Header())
			}
			if err := site.mw.Purge(t.Context(), "http://host/"); err != nil {
				t.Fatal(err)
			}
			site.do("HEAD", "/")
			site.wantRuns("after a purge", 1)
			synctest.Wait()
		})
	}
}
