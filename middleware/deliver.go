package middleware

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stockade-cache/stockade"
)

// deliver answers with a stored page (RFC 9111 4).
func (v *visit) deliver(e entry) {
	p := e.Value.Page
	h := v.w.Header()
	copyFields(h, p.Header)
	age := p.age(e)
	h.Set("Age", strconv.FormatInt(int64(age/time.Second), 10)) // RFC 9111 5.1
	switch e.Source {
	case stockade.Joined, stockade.Remote:
		v.tellCollapsed(h, p.Fresh-age)
	case stockade.Loaded:
		v.tellStale(h, p.Fresh-age)
	default:
		v.tellHit(h, p.Fresh-age)
	}
	v.send(p.Status, p.Body)
}

// deliverOwn answers with the response of the request's own run, as the handler made it.
func (v *visit) deliverOwn(r *run) {
	h := v.w.Header()
	copyFields(h, r.own.header)
	r.tellLed(h, r.verdict.Value != nil && r.verdict.Value.Mark == nil && !r.verdict.NoStore)
	v.send(r.own.status, r.own.body)
}

// send sends a response whose fields are set: all of it, a part (RFC 9110 14), or that the client has it.
func (v *visit) send(status int, body []byte) {
	h := v.w.Header()
	if status == http.StatusOK {
		if v.r.Method == http.MethodGet && honours(v.r.Header["Range"], body) {
			modified, _ := http.ParseTime(h.Get("Last-Modified"))
			http.ServeContent(v.w, v.r, "", modified, bytes.NewReader(body))
			return
		}
		if notModified(v.r, h) {
			dropBody(h)
			v.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	v.w.WriteHeader(status)
	if v.r.Method != http.MethodHead && len(body) > 0 {
		_, _ = v.w.Write(body)
	}
}

// honours reports whether a Range is answered with parts. Any may be ignored (RFC 9110 14.2). So are those of which
// [http.ServeContent] would make a part without bytes, which no Content-Range can name: of nothing, and the last 0 bytes.
func honours(ranges []string, body []byte) bool {
	if len(ranges) == 0 || len(body) == 0 {
		return false
	}
	_, specs, _ := strings.Cut(ranges[0], "=")
	for spec := range strings.SplitSeq(specs, ",") {
		suffix, isSuffix := strings.CutPrefix(strings.Trim(spec, " \t"), "-")
		if isSuffix && strings.Trim(suffix, " \t+0") == "" {
			return false
		}
	}
	return true
}

// refuse answers in place of the handler.
func (v *visit) refuse(status int, detail string) {
	h := v.w.Header()
	v.status.detail = detail
	v.tell(h, "fwd="+v.miss())
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	text := http.StatusText(status) + "\n"
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	v.w.WriteHeader(status)
	if v.r.Method != http.MethodHead {
		_, _ = io.WriteString(v.w, text)
	}
}

// abandon answers a request whose context has ended. Its client may be there all the same, when a middleware outside has
// ended it: to write nothing would be an empty 200.
func (v *visit) abandon() {
	if errors.Is(v.r.Context().Err(), context.DeadlineExceeded) {
		v.refuse(http.StatusGatewayTimeout, "cancelled")
		return
	}
	v.refuse(http.StatusServiceUnavailable, "cancelled")
}
