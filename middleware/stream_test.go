package middleware

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// streams are ways to say that a response is to be sent as it is made. Each sends "first".
var streams = map[string]func(http.ResponseWriter){
	"event stream": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(200)
		_, _ = io.WriteString(w, "first")
		_, _ = w.Write(make([]byte, 100_000)) // enough for net/http to send it
	},
	"Flush":  func(w http.ResponseWriter) { _, _ = io.WriteString(w, "first"); w.(http.Flusher).Flush() },
	"length": func(w http.ResponseWriter) { w.Header().Set("Content-Length", "2000000"); writeMuch(w) },
	"much":   writeMuch,
	"private": func(w http.ResponseWriter) {
		w.Header().Set("Cache-Control", "private")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
	},
}

func writeMuch(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "first")
	_, _ = w.Write(make([]byte, 1999995))
}

// The first byte comes while the handler runs, and who waited is let go while it runs; so it is over HTTP/2.
func TestStreams(t *testing.T) {
	for name, stream := range streams {
		for _, h2 := range []bool{false, true} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				t.Run(fmt.Sprint(name, "/h2=", h2, "/", method), func(t *testing.T) {
					var m meter
					begun, others, end := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
					f := unserved(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
						defer m.run()()
						w.Header().Set("Cache-Control", "max-age=60")
						begun <- struct{}{}
						<-others
						stream(w)
						<-end
					})
					f.serveHTTP(t, h2)
					const clients = 10
					opened := make(chan *http.Response, clients)
					for range clients {
						go func() { opened <- f.open(t, method) }()
					}
					f.awaitArrivals(t, clients)
					close(others)
					responses := make([]*http.Response, clients)
					for i := range responses {
						responses[i] = await(t, "a response begins while the handlers run", opened)
						first := make([]byte, 5)
						if _, err := io.ReadFull(responses[i].Body, first); err != nil || string(first) != "first" {
							t.Errorf("got %q, error %v", first, err)
						}
					}
					close(end)
					for _, res := range responses {
						if _, err := io.Copy(io.Discard, res.Body); err != nil {
							t.Error(err)
						}
						_ = res.Body.Close()
						if res.ProtoMajor == 2 != h2 {
							t.Errorf("the protocol is %s", res.Proto)
						}
					}
					if m.runs.Load() != clients {
						t.Errorf("%d runs for %d clients", m.runs.Load(), clients)
					}
				})
			}
		}
	}
}

// serveHTTP starts the server with one version of HTTP or the other.
func (f *front) serveHTTP(t testing.TB, h2 bool) {
	t.Helper()
	if !h2 {
		f.serve(t)
		return
	}
	f.Server = httptest.NewUnstartedServer(f.handler)
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(f.Close)
	f.manyClients()
}

// open begins a request whose body the caller reads and closes.
func (f *front) open(t testing.TB, method string) *http.Response {
	req, _ := http.NewRequestWithContext(t.Context(), method, f.URL, nil)
	res, err := f.Client().Do(req)
	if err != nil {
		t.Error(err)
		return &http.Response{Body: http.NoBody}
	}
	return res
}

// What a handler may ask of the connection reaches it, in a run whose response is recorded and in one that streams.
func TestResponseController(t *testing.T) {
	for name, control := range map[string]string{"recorded": "max-age=60", "streamed": "private"} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", control)
				c := http.NewResponseController(w)
				_, _ = fmt.Fprint(w, c.SetReadDeadline(time.Time{}), c.EnableFullDuplex(), c.SetWriteDeadline(time.Now().Add(-time.Second)))
			})
			if r := f.get("/"); r.err == nil {
				t.Errorf("got %d %q after the deadline of the connection", r.status, r.body)
			}
		})
	}
}

// A run that goes on when its client has left has no connection, which is no reason to fail: somebody else gets the page.
func TestDeadlinesOfNobodysConnection(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		close(begun)
		<-end
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Now()), c.SetWriteDeadline(time.Now()), c.EnableFullDuplex()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, "a page")
	})
	leave := f.leaving(t, "/")
	await(t, "the run begins", begun)
	leave()
	close(end)
	f.get("/").want(t, 200, "a page")
}

// A 1xx is passed on at once, with its fields, and is no part of the response.
func TestEarlyHints(t *testing.T) {
	for name, control := range map[string]string{"recorded": "max-age=60", "streamed": "private"} {
		t.Run(name, func(t *testing.T) {
			hinted := make(chan struct{})
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				<-hinted
				w.Header().Del("Link")
				w.Header().Set("Cache-Control", control)
				_, _ = fmt.Fprint(w, "a page")
			})
			var links []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				links = append(links, fmt.Sprint(code, h["Link"]))
				close(hinted)
				return nil
			}})
			r := f.send(ctx, http.MethodGet, "/")
			r.want(t, 200, "a page")
			if len(links) != 1 || links[0] != "103 [</style.css>; rel=preload]" || r.header["Link"] != nil {
				t.Errorf("got hints %q, and Link %q in the response", links, r.header["Link"])
			}
			r = f.get("/")
			if r.want(t, 200, "a page"); r.header["Link"] != nil {
				t.Errorf("got Link %q later", r.header["Link"])
			}
		})
	}
}

// What streams has the handler's trailers.
func TestTrailers(t *testing.T) {
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Announced")
		w.Header().Set("Cache-Control", "private")
		_, _ = fmt.Fprint(w, strings.Repeat("x", 10_000))
		w.Header().Set("Announced", "a")
		w.Header().Set(http.TrailerPrefix+"Late", "b")
		w.Header().Set("Neither", "c")
	})
	for range 2 { // by the run, and past the mark
		res := f.open(t, http.MethodGet)
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.Trailer.Get("Announced") != "a" || res.Trailer.Get("Late") != "b" || res.Trailer.Get("Neither")+res.Header.Get("Neither") != "" {
			t.Errorf("got trailers %v", res.Trailer)
		}
	}
}

// A handler may take the connection, as long as nobody else waits for what it makes of it.
func TestHijack(t *testing.T) {
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntaken")
		_ = rw.Flush()
	})
	for _, r := range crowd(10, func(int) reply { return f.get("/") }) {
		r.want(t, 200, "taken")
	}
}
