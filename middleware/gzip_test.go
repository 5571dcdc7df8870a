package middleware

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// gzipped is a middleware that compresses for those who understand it, as many do.
func gzipped(next http.Handler, vary bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if vary {
			w.Header().Add("Vary", "Accept-Encoding")
		}
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		zw := &gzipWriter{ResponseWriter: w, gz: gzip.NewWriter(w)}
		defer func() { _ = zw.gz.Close() }()
		next.ServeHTTP(zw, r)
	})
}

type gzipWriter struct {
	http.ResponseWriter
	gz    *gzip.Writer
	wrote bool
}

func (w *gzipWriter) WriteHeader(status int) {
	w.wrote = true
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Encoding", "gzip")
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(200)
	}
	return w.gz.Write(p)
}

// decoded is the body for a client.
func (r reply) decoded() reply {
	if r.header.Get("Content-Encoding") == "gzip" {
		zr, err := gzip.NewReader(strings.NewReader(r.body))
		if err != nil {
			r.err = err
			return r
		}
		plain, err := io.ReadAll(zr)
		r.body, r.err = string(plain), err
	}
	return r
}

// Compressed outside (go-chi/stampede#15): what is stored is the plain page. Compressed inside, with and without Vary: each
// client gets what it understands.
func TestCompression(t *testing.T) {
	page := strings.Repeat("a page ", 100)
	for _, where := range []string{"outside", "inside", "inside without Vary"} {
		for _, order := range []string{"gzip first", "plain first", "at once"} {
			t.Run(where+"/"+order, func(t *testing.T) {
				var m meter
				var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					defer m.run()()
					w.Header().Set("Cache-Control", "max-age=60")
					w.Header().Set("Content-Type", "text/plain")
					_, _ = io.WriteString(w, page)
				})
				inner := h
				if where != "outside" {
					inner = gzipped(h, where == "inside")
				}
				f := unserved(t, redistest.Real(t).Client(t), inner.ServeHTTP)
				if where == "outside" {
					f.handler = gzipped(f.handler, true)
				}
				f.serve(t)
				understood := func(i int) bool { return i%2 == 0 == (order != "plain first") }
				ask := func(i int) reply {
					if understood(i) {
						return f.get("/", "Accept-Encoding", "gzip")
					}
					return f.get("/")
				}
				var replies []reply
				if order == "at once" {
					replies = crowd(40, ask)
				}
				for i := range 6 {
					replies = append(replies, ask(i))
				}
				for i, r := range replies {
					encoded := r.header.Get("Content-Encoding") == "gzip"
					if r.decoded().want(t, 200, page); encoded && !understood(i) {
						t.Errorf("request %d got gzip without asking for it", i)
					}
				}
				if runs := m.runs.Load(); where == "outside" && runs != 1 || runs > 2 {
					t.Errorf("%d runs", runs)
				}
			})
		}
	}
}

// go-chi/stampede#6: what middlewares outside have set is of the request at hand, not of the page; and what is of one
// exchange is not of the next.
func TestFieldsOfOthersAreNotReplayed(t *testing.T) {
	var n atomic.Int64
	f := unserved(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("X-Request-Id", "of the run")
		w.Header().Set("Server-Timing", "db;dur=1")
		w.Header().Set("Page", "yes")
		_, _ = io.WriteString(w, "a page")
	})
	inner := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Add("Vary", "Origin")
		w.Header().Set("X-Outer-Id", fmt.Sprint(n.Add(1)))
		inner.ServeHTTP(w, r)
	})
	f.serve(t)
	replies := crowd(20, func(i int) reply { return f.get("/", "Origin", fmt.Sprint("https://", i)) })
	replies = append(replies, f.get("/", "Origin", "https://20"))
	ids, led := map[string]bool{}, 0
	for i, r := range replies {
		r.want(t, 200, "a page")
		if got := r.header["Access-Control-Allow-Origin"]; len(got) != 1 || got[0] != fmt.Sprint("https://", i) {
			t.Errorf("origin %d got %q", i, got)
		}
		if got := r.header["Vary"]; len(got) != 1 || r.header.Get("Page") != "yes" {
			t.Errorf("origin %d got Vary %q, Page %q", i, got, r.header["Page"])
		}
		if r.header.Get("X-Request-Id") != "" {
			led++
		}
		if (r.header.Get("X-Request-Id") == "") != (r.header.Get("Server-Timing") == "") {
			t.Error("one of the fields of the run came without the other")
		}
		ids[r.header.Get("X-Outer-Id")] = true
	}
	if len(ids) != len(replies) || led != 1 {
		t.Errorf("%d different ids for %d requests, %d with the fields of the run, want 1", len(ids), len(replies), led)
	}
}
