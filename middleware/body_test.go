package middleware

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// bytesOf are the same for the same size, and no text.
func bytesOf(size int) []byte {
	made, ok := bodies.Load(size)
	if !ok {
		b := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)}).Read(b)
		made, _ = bodies.LoadOrStore(size, b)
	}
	return made.([]byte)
}

var bodies sync.Map // by size; nobody changes them

// writings are ways to write a body.
var writings = map[string]func(http.ResponseWriter, []byte){
	"at once": func(w http.ResponseWriter, b []byte) { _, _ = w.Write(b) },
	"string":  func(w http.ResponseWriter, b []byte) { _, _ = w.(io.StringWriter).WriteString(string(b)) },
	"from":    func(w http.ResponseWriter, b []byte) { _, _ = w.(io.ReaderFrom).ReadFrom(bytes.NewReader(b)) },
	"with length": func(w http.ResponseWriter, b []byte) {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b)
	},
	"reused": writeReused,
	"first a byte": func(w http.ResponseWriter, b []byte) {
		_, _ = w.Write(b[:1])
		_, _ = io.Copy(w, bytes.NewReader(b[1:]))
	},
}

// writeReused writes pieces from one buffer, which it overwrites.
func writeReused(w http.ResponseWriter, b []byte) {
	piece := make([]byte, 1000)
	for len(b) > 0 {
		n := copy(piece, b)
		_, _ = w.Write(piece[:n])
		b = b[n:]
	}
	clear(piece)
}

// Bodies of all sizes come back as they were, from the run and from what is stored; greater ones than MaxBody stream.
func TestBodiesOfAllSizes(t *testing.T) {
	const maxBody = 1 << 20
	rdb := redistest.Real(t).Client(t)
	for name, write := range writings {
		t.Run(name, func(t *testing.T) {
			var m meter
			f := newFront(t, rdb, func(w http.ResponseWriter, r *http.Request) {
				defer m.run()()
				size, _ := strconv.Atoi(r.URL.Query().Get("size"))
				w.Header().Set("Cache-Control", "max-age=60")
				write(w, bytesOf(size))
			}, func(o *Options) { o.MaxBody, o.Prefix = maxBody, "bodies:"+name })
			for _, size := range []int{1, 2, 511, 4096, 4097, 100_000, maxBody - 1, maxBody, maxBody + 1, 8 << 20} {
				path, want := fmt.Sprint("/?size=", size), string(bytesOf(size))
				before := m.runs.Load()
				for i := range 3 {
					r := f.get(path)
					if r.err != nil || r.status != 200 || r.body != want {
						t.Errorf("%d B, request %d: got %d with %d B (error %v), the same: %t", size, i, r.status, len(r.body), r.err, r.body == want)
					}
					if length := r.header.Get("Content-Length"); size <= maxBody && length != strconv.Itoa(size) {
						t.Errorf("%d B, request %d: Content-Length %q", size, i, length)
					}
				}
				if runs := m.runs.Load() - before; size <= maxBody && runs != 1 || size > maxBody && runs != 3 {
					t.Errorf("%d B: %d runs for 3 requests", size, runs)
				}
			}
		})
	}
}

// Responses without a body stay so.
func TestNoBody(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		length []string // of Content-Length
	}{
		"empty":         {200, "", []string{"0"}},
		"204":           {204, "", nil},
		"301":           {301, "", []string{"0"}},
		"301 with body": {301, "moved", []string{"5"}},
		"404":           {404, "none", []string{"4"}},
	} {
		t.Run(name, func(t *testing.T) {
			var m meter
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
				defer m.run()()
				w.Header().Set("Cache-Control", "max-age=60")
				if c.status == 301 {
					w.Header().Set("Location", "/elsewhere")
				}
				w.WriteHeader(c.status)
				if c.body != "" {
					_, _ = io.WriteString(w, c.body)
				}
			})
			for range 2 {
				r := f.get("/")
				r.want(t, c.status, c.body)
				if got := r.header["Content-Length"]; fmt.Sprint(got) != fmt.Sprint(c.length) {
					t.Errorf("Content-Length %q, want %q", got, c.length)
				}
				if c.status == 301 && r.header.Get("Location") != "/elsewhere" {
					t.Errorf("Location %q", r.header.Get("Location"))
				}
			}
			if m.runs.Load() != 1 {
				t.Errorf("%d runs, want 1", m.runs.Load())
			}
		})
	}
}

// HEAD is answered by its own run, or by what GET stored, and never answers GET.
func TestHead(t *testing.T) {
	var m meter
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
		defer m.run()()
		w.Header().Set("Cache-Control", "max-age=60")
		if r.URL.Path == "/declares" {
			w.Header().Set("Content-Length", "6")
		}
		if r.Method == http.MethodGet || r.URL.Path == "/writes" {
			_, _ = io.WriteString(w, "a page")
		}
	})
	for _, c := range []struct {
		method, path string
		length       int64
		runs         int64 // so far
	}{
		{"HEAD", "/writes", 6, 1}, {"HEAD", "/writes", 6, 1}, {"GET", "/writes", 6, 2}, {"HEAD", "/writes", 6, 2},
		{"HEAD", "/declares", 6, 3}, {"HEAD", "/declares", 6, 3}, {"GET", "/declares", 6, 4}, {"HEAD", "/declares", 6, 4},
		{"GET", "/plain", 6, 5}, {"HEAD", "/plain", -1, 5},
	} {
		r := f.send(t.Context(), c.method, c.path)
		body := "a page"
		if c.method == http.MethodHead {
			body = ""
		}
		r.want(t, 200, body)
		if got := r.header.Get("Content-Length"); c.length >= 0 && got != fmt.Sprint(c.length) {
			t.Errorf("%s %s: Content-Length %q, want %d", c.method, c.path, got, c.length)
		}
		if m.runs.Load() != c.runs {
			t.Errorf("%s %s: %d runs so far, want %d", c.method, c.path, m.runs.Load(), c.runs)
		}
	}
}

// What is not there yet must not be stored (cacheify#3): an empty body whose length is said to be another.
func TestEmptyBodyOfSomeLength(t *testing.T) {
	var m meter
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		defer m.run()()
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Length", "6")
		if m.runs.Load() > 1 {
			_, _ = io.Copy(w, strings.NewReader("a page"))
		}
	})
	if r := f.get("/"); r.err == nil {
		t.Errorf("got %d %q and no error", r.status, r.body)
	}
	f.get("/").want(t, 200, "a page")
}
