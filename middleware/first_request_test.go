package middleware

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The first request wants a part, or asks whether it has the page: the next gets all of it (httpcache#51).
func TestFirstRequestIsForLess(t *testing.T) {
	const page = "0123456789"
	for _, fields := range [][]string{
		{"Range", "bytes=0-3"},
		{"Range", "bytes=99-"},
		{"If-None-Match", `"v"`},
		{"If-None-Match", "*"},
		{"If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"},
		{"If-Match", `"other"`},
		{"If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"},
		{"If-Range", `"v"`, "Range", "bytes=1-2"},
	} {
		t.Run(fmt.Sprint(fields), func(t *testing.T) {
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Etag", `"v"`)
				http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), strings.NewReader(page))
			})
			first := f.get("/", fields...)
			f.get("/").want(t, 200, page)
			f.get("/").want(t, 200, page)
			again := f.get("/", fields...)
			for i, r := range []reply{first, again} {
				if r.err != nil || r.status == 200 && r.body != page || r.status == 304 && r.body != "" {
					t.Errorf("answer %d: %d %q, error %v", i, r.status, r.body, r.err)
				}
			}
		})
	}
}

// What asks whether the page still stands is our question, however the handler sends its 304: the client did not ask
// (souin#794).
func TestNotModifiedIsOurs(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"plain":   func(w http.ResponseWriter) { w.WriteHeader(304) },
		"flushed": func(w http.ResponseWriter) { w.WriteHeader(304); _ = http.NewResponseController(w).Flush() },
		"written": func(w http.ResponseWriter) { w.WriteHeader(304); _, _ = io.WriteString(w, "no body") },
	} {
		for _, control := range []string{"max-age=0", "no-cache"} {
			t.Run(name+"/"+control, func(t *testing.T) {
				var asked meter
				f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", control)
					w.Header().Set("Etag", `"v"`)
					if r.Header.Get("If-None-Match") == `"v"` {
						defer asked.run()()
						answer(w)
						return
					}
					_, _ = io.WriteString(w, "a page")
				}, func(o *Options) { o.HitForMiss = 10 * time.Millisecond })
				f.get("/").want(t, 200, "a page")
				shared, alone := 0, 0
				redistest.Eventually(t, soon, "runs for all, and for one client, are answered so", func() bool {
					r := f.get("/")
					r.want(t, 200, "a page")
					if strings.Contains(r.header.Get("Cache-Status"), "detail=no-cache") {
						alone++
					} else {
						shared++
					}
					return shared > 2 && alone > 2
				})
				if asked.runs.Load() < 3 {
					t.Errorf("the handler was asked %d times", asked.runs.Load())
				}
			})
		}
	}
}

// Cookies of one client are nobody else's.
func TestSetCookieIsNotReplayed(t *testing.T) {
	var session atomic.Int64
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		http.SetCookie(w, &http.Cookie{Name: "session", Value: fmt.Sprint(session.Add(1))})
	})
	seen := map[string]bool{}
	for _, r := range crowd(50, func(int) reply { return f.get("/") }) {
		seen[r.header.Get("Set-Cookie")] = true
	}
	if len(seen) != 50 {
		t.Errorf("50 clients got %d cookies", len(seen))
	}
}
