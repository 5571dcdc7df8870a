package middleware

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// recorder is the ResponseWriter of a run. It has a header of its own: what other middlewares have set on the client's is
// not part of the response. It records what may be stored, streams to the client what may not, and when the client is gone
// takes nothing any more. It is used by the handler's goroutine alone.
type recorder struct {
	run    *run
	ctx    context.Context
	header http.Header

	status  int         // zero until the header is written
	sent    http.Header // as it was then
	refused string      // why the response is not stored
	failure error       // of a response that says that the handler failed
	instead entry       // an older page that is served instead of it
	to      sink
	client  http.ResponseWriter // when it streams
	body    []byte
	written int64
	length  int64 // by Content-Length, or -1
}

// sink is where the body goes.
type sink uint8

const (
	toRecord  sink = iota
	toClient       // as it is made
	toNowhere      // nobody wants it
)

// finalLength is what a handler's Content-Length says, or -1.
func finalLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

func (rec *recorder) Header() http.Header { return rec.header }

func (rec *recorder) WriteHeader(status int) {
	switch {
	case rec.status != 0:
		return
	case status < 100 || status > 999: // as net/http does, and where the handler is to blame
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		rec.interim(status)
		return
	}
	rec.status, rec.sent, rec.length = status, rec.header.Clone(), finalLength(rec.header)
	rec.decide()
}

// interim passes a 1xx on, which is no part of the response (RFC 9110 15.2).
func (rec *recorder) interim(status int) {
	_ = rec.run.touch(func(w http.ResponseWriter) error {
		before := w.Header().Clone()
		copyFields(w.Header(), rec.header)
		w.WriteHeader(status)
		clear(w.Header())
		maps.Copy(w.Header(), before)
		return nil
	})
}

// decide says where the body goes, when the header is known.
func (rec *recorder) decide() {
	r := rec.run
	r.fwd = rec.status
	if rec.isOurs() {
		return
	}
	if isError(rec.status) {
		if e, ok := r.older(); ok {
			rec.instead, rec.to = e, toNowhere
			return
		}
	}
	r.terms, rec.refused = r.route.storable(r.r, rec.status, rec.sent, time.Now())
	if rec.refused == "" && rec.length > int64(r.route.MaxBody) {
		rec.refused = "too-large"
	}
	if rec.refused == "" {
		return
	}
	if isError(rec.status) {
		rec.failure = statusError(rec.status)
	}
	rec.stream()
}

// stream lets go of what others may have of this response, and sends it to the client as it is made from here on.
func (rec *recorder) stream() {
	r := rec.run
	rec.client = r.stream()
	r.unshared(rec.refused, rec.failure) // first: a slow client holds nobody up
	if rec.client == nil {
		rec.to = toNowhere
		r.cancel(errDetached)
		return
	}
	rec.to = toClient
	copyFields(rec.client.Header(), rec.sent)
	r.tellLed(rec.client.Header(), false)
	rec.client.WriteHeader(rec.status)
	if len(rec.body) > 0 {
		_, _ = rec.client.Write(rec.body)
		rec.body = nil
	}
}

// isOurs reports whether the response answers a question of the cache, not of the client: an old page still stands.
func (rec *recorder) isOurs() bool {
	return rec.status == http.StatusNotModified && rec.run.old.Value != nil
}

// unbuffer is stream for a handler that wants its client to have what it wrote.
func (rec *recorder) unbuffer() {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if rec.to == toRecord && !rec.isOurs() {
		rec.refused = "stream"
		rec.stream()
	}
}

func (rec *recorder) Write(p []byte) (int, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if rec.to == toRecord {
		if rec.length >= 0 && rec.written+int64(len(p)) > rec.length && rec.run.r.Method != http.MethodHead {
			rec.written += int64(len(p)) // so that it is not complete
			return 0, http.ErrContentLength
		}
		if len(rec.body)+len(p) > rec.run.route.MaxBody {
			rec.refused = "too-large"
			rec.stream()
		}
	}
	switch rec.to {
	case toClient:
		return rec.client.Write(p)
	case toNowhere:
		if rec.instead.Value != nil {
			return len(p), nil
		}
		return 0, errDetached
	}
	rec.written += int64(len(p))
	if rec.run.r.Method != http.MethodHead {
		rec.body = append(rec.body, p...)
	}
	return len(p), nil
}

func (rec *recorder) WriteString(s string) (int, error) { return rec.Write([]byte(s)) }

// ReadFrom lets a response that streams use what the client's writer has for it, sendfile say.
func (rec *recorder) ReadFrom(src io.Reader) (n int64, err error) {
	if rec.to == toRecord {
		// As much as may be recorded. Beyond it the response streams.
		n, err = io.CopyN(justWriter{rec}, src, int64(rec.run.route.MaxBody)+1)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
	}
	var rest int64
	if rec.to == toClient {
		rest, err = io.Copy(rec.client, src)
	} else {
		rest, err = io.Copy(justWriter{rec}, src)
	}
	return n + rest, err
}

// justWriter hides everything but Write.
type justWriter struct{ io.Writer }

func (rec *recorder) Flush() { _ = rec.FlushError() }

func (rec *recorder) FlushError() error {
	rec.unbuffer()
	switch rec.to {
	case toClient:
		return http.NewResponseController(rec.client).Flush()
	case toRecord: // it is ours
		return nil
	}
	return errDetached
}

// Hijack gives the connection to the handler, as long as the client is there.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if rec.status != 0 {
		return nil, nil, http.ErrNotSupported
	}
	var conn net.Conn
	var rw *bufio.ReadWriter
	err := rec.run.touch(func(w http.ResponseWriter) (err error) {
		conn, rw, err = http.NewResponseController(w).Hijack()
		return err
	})
	if err == nil {
		rec.status, rec.sent, rec.to = http.StatusSwitchingProtocols, rec.header.Clone(), toNowhere
		rec.run.stream()
		rec.run.unshared("upgrade", nil)
	}
	return conn, rw, err
}

func (rec *recorder) SetReadDeadline(t time.Time) error {
	return rec.control(func(c *http.ResponseController) error { return c.SetReadDeadline(t) })
}

func (rec *recorder) SetWriteDeadline(t time.Time) error {
	return rec.control(func(c *http.ResponseController) error { return c.SetWriteDeadline(t) })
}

func (rec *recorder) EnableFullDuplex() error {
	return rec.control((*http.ResponseController).EnableFullDuplex)
}

func (rec *recorder) control(f func(*http.ResponseController) error) error {
	if rec.client != nil {
		return f(http.NewResponseController(rec.client))
	}
	err := rec.run.touch(func(w http.ResponseWriter) error { return f(http.NewResponseController(w)) })
	if errors.Is(err, errDetached) { // no connection, no deadline: others may still get the page
		return nil
	}
	return err
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// finish is for a handler that has returned.
func (rec *recorder) finish() {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	r := rec.run
	to, client := rec.end()
	switch {
	case to == toClient:
		copyTrailers(client.Header(), rec.header, rec.sent)
		return
	case rec.instead.Value != nil:
		r.settle(rec.instead, nil)
		return
	case to == toNowhere:
		return
	}
	rec.describe()
	own := &response{rec.status, rec.sent, rec.body}
	switch {
	case rec.isOurs():
		r.revalidated(rec.ctx, rec.sent)
	case rec.length >= 0 && rec.written != rec.length && r.r.Method != http.MethodHead && bodyAllowed(rec.status):
		r.own = own
		r.unshared("incomplete", errCut)
	case rec.ctx.Err() != nil: // what the handler made of that is not to be shared
		r.own = own
		r.unshared("cancelled", errCancelled)
	default:
		r.own = own
		r.share(rec.ctx, own)
	}
}

// end takes everything from a handler that is done, and returns where its body went: what it has left running writes to
// nobody.
func (rec *recorder) end() (to sink, client http.ResponseWriter) {
	to, client = rec.to, rec.client
	rec.to, rec.client = toNowhere, nil
	return to, client
}

// describe adds what net/http says of a body for a handler that does not.
func (rec *recorder) describe() {
	_, typed := rec.sent["Content-Type"]
	if !typed && len(rec.body) > 0 && rec.sent.Get("Content-Encoding") == "" {
		rec.sent.Set("Content-Type", http.DetectContentType(rec.body))
	}
	if !bodyAllowed(rec.status) || rec.sent["Content-Length"] != nil || rec.sent["Transfer-Encoding"] != nil {
		return
	}
	if rec.written > 0 || rec.run.r.Method != http.MethodHead { // a handler may write nothing for HEAD, of a body that is there
		rec.sent.Set("Content-Length", strconv.FormatInt(rec.written, 10))
	}
}

// abort is for a handler that has panicked.
func (rec *recorder) abort(v any) {
	r := rec.run
	switch to, _ := rec.end(); {
	case to == toClient:
		r.panicked = v
	case rec.instead.Value != nil:
		r.report(v)
		r.settle(rec.instead, nil)
	case to == toNowhere:
		r.report(v)
	default:
		if e, ok := r.older(); ok {
			r.report(v)
			r.settle(e, nil)
			return
		}
		r.mu.Lock()
		attended := r.client != nil
		r.mu.Unlock()
		if r.panicked = v; !attended {
			r.report(v)
		}
		r.unshared("panic", errFailed)
	}
}

// copyTrailers sets what a handler has set after its header, when it said that it would (RFC 9110 6.5).
func copyTrailers(to, header, sent http.Header) {
	for name, values := range header {
		prefixed := len(name) > len(http.TrailerPrefix) && name[:len(http.TrailerPrefix)] == http.TrailerPrefix
		if prefixed || announced(sent, name) {
			to[name] = values
		}
	}
}

func announced(sent http.Header, name string) bool {
	for _, trailer := range list(sent, "Trailer") {
		if http.CanonicalHeaderKey(trailer) == name {
			return true
		}
	}
	return false
}
