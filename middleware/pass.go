package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/stockade-cache/stockade"
)

// pass lets the handler answer this client alone. e is what the key holds, if anything: a mark, or a page that is to be
// validated. When the handler's answer might have been shared, that is removed, so that the next request may.
func (v *visit) pass(e entry, key string) {
	w := &watcher{ResponseWriter: v.w}
	r := v.r
	if v.route.Cookies != nil && v.isRead() {
		r = v.route.handled(r, r.Context())
	}
	var refused string
	var old *page
	if e.Value != nil {
		old = e.Value.Page
	}
	w.before = func(status int, h http.Header) bool {
		if old != nil && status == http.StatusNotModified {
			return false
		}
		if e.Value != nil {
			_, refused = v.route.storable(v.r, status, h, time.Now())
		}
		v.tellForwarded(h, status)
		return true
	}
	if old != nil {
		r = v.route.handled(v.r, r.Context())
		withoutConditions(r.Header)
		conditional(r.Header, old)
		w.header = http.Header{}
	}
	v.next.ServeHTTP(w, r)
	w.end()
	switch {
	case w.withheld:
		stands, now := *old, time.Now()
		stands.Header = v.route.updated(old.Header, w.header, now)
		stands.Age = initialAge(w.header, now)
		v.deliver(entry{Value: &stored{Page: &stands}, Source: stockade.Loaded})
	case e.Value != nil && refused == "" && !w.flushed && w.written <= int64(v.route.MaxBody):
		v.m.clear(v.r.Context(), key, e)
	}
}

func (v *visit) isRead() bool { return v.r.Method == http.MethodGet || v.r.Method == http.MethodHead }

// watcher passes a response on, and tells when its header is about to be sent.
type watcher struct {
	http.ResponseWriter
	header http.Header // of the response until it is sent, when it may be withheld; nil when it is the client's own
	before func(status int, h http.Header) (send bool)

	wrote    bool
	withheld bool
	flushed  bool
	written  int64
}

func (w *watcher) Header() http.Header {
	if w.header != nil {
		return w.header
	}
	return w.ResponseWriter.Header()
}

func (w *watcher) WriteHeader(status int) {
	if w.wrote || w.withheld {
		return
	}
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if !w.before(status, w.Header()) {
			w.withheld = true
			return
		}
		w.wrote = true
		if w.header != nil {
			header := w.header
			w.header = nil
			copyFields(w.ResponseWriter.Header(), header)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// end sends the header for a handler that has not.
func (w *watcher) end() {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
}

func (w *watcher) Write(p []byte) (int, error) {
	w.end()
	if w.withheld {
		return 0, http.ErrBodyNotAllowed
	}
	n, err := w.ResponseWriter.Write(p)
	w.written += int64(n)
	return n, err
}

func (w *watcher) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *watcher) ReadFrom(src io.Reader) (int64, error) {
	w.end()
	if w.withheld {
		return 0, http.ErrBodyNotAllowed
	}
	n, err := io.Copy(w.ResponseWriter, src)
	w.written += n
	return n, err
}

func (w *watcher) Flush() { _ = w.FlushError() }

func (w *watcher) FlushError() error {
	w.end()
	if w.withheld {
		return nil
	}
	w.flushed = true
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *watcher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.wrote, w.flushed = true, true
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (w *watcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }
