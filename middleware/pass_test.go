package middleware

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page with no-cache is validated for each request: that went to the handler, and is no hit (RFC 9211 2.1, 2.2).
func TestValidatedForEachRequest(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache, max-age=60")
		w.Header().Set("Etag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.Header().Set("Age", "7")
			w.Header().Set("X-New", "304")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		answers("page")(w, r)
	})
	want(t, "body", bodyOf(t, s.get("http://a.example/")), "page")
	for runs := range int64(2) {
		r := s.get("http://a.example/")
		want(t, "status", r.StatusCode, 200)
		want(t, "body", bodyOf(t, r), "page")
		want(t, "Age", r.Header.Get("Age"), "7")
		want(t, "a field of the 304", r.Header.Get("X-New"), "304")
		want(t, "Cache-Status", r.Header.Get("Cache-Status"), "stockade; fwd=stale; ttl=53; detail=no-cache")
		wantRuns(t, s, runs+2)
	}
	// What the client has is compared with the page, not with what the handler was asked.
	want(t, "status", s.get("http://a.example/", `If-None-Match: "1"`).StatusCode, 304)
	want(t, "status", s.get("http://a.example/", `If-None-Match: "2"`).StatusCode, 200)
}

// The handler that validates a page hears nothing of the client's own conditions: they are about what the client has.
func TestValidationHasConditionsOfThePage(t *testing.T) {
	var asked http.Header // of the last run
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header
		answers("page", "Cache-Control: no-cache, max-age=60", `Etag: "1"`)(w, r)
	})
	s.wantBody("page", "/")
	s.wantBody("page", "/", `If-None-Match: "2"`, `If-Match: "3"`, "If-Modified-Since: "+httpDate(0), "If-Unmodified-Since: "+httpDate(0), `If-Range: "4"`)
	for _, name := range []string{"If-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		want(t, name, asked.Get(name), "")
	}
	want(t, "If-None-Match", asked.Get("If-None-Match"), `"1"`)
}

// What is not shared gets no other cookies than what is: else who asks could be told apart after all. Methods that are never
// shared get all of them.
func TestCookiesOfWhatIsNotShared(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answers(r.Header.Get("Cookie"), "Cache-Control: private")(w, r)
	}, func(o *Options) { o.Cookies = []string{"a"} })
	for range 2 { // the second meets the mark of the first
		s.wantBody("a=1", "/", "Cookie: z=9; a=1; y=8")
	}
	s.wantBody("a=1", "/", "Cookie: z=9; a=1", "Range: bytes=0-1")
	for _, method := range []string{http.MethodOptions, http.MethodPost} {
		want(t, method, s.do(method, "/", "Cookie: z=9; a=1").Body.String(), "z=9; a=1")
	}
}

// A mark stays while the responses could not be shared: what streams, or is too long, however it says that it may be stored.
func TestAMarkStays(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, write := range map[string]func(w http.ResponseWriter){
		"flushed":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x"); w.(http.Flusher).Flush() },
		"too long":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, long) },
		"copied long": func(w http.ResponseWriter) { _, _ = io.Copy(w, io.LimitReader(strings.NewReader(long), 100)) },
		"refused":     func(w http.ResponseWriter) { w.Header().Set("Cache-Control", "private"); _, _ = io.WriteString(w, "x") },
		"short":       func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
	} {
		private := true
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			if private {
				w.Header().Set("Cache-Control", "private")
			}
			write(w)
		}, func(o *Options) { o.MaxBody = 50 })
		s.do("GET", "/")
		private = false
		s.do("GET", "/")
		e, err := s.mw.cache.Lookup(t.Context(), target{"http", "host", "/"}.key("GET"))
		want(t, name+": the mark is there", err == nil && e.Value.Mark != nil, name != "short")
	}
}

// The header of a response is told of once, also when it is that of another protocol.
func TestWatcher(t *testing.T) {
	for _, status := range []int{101, 200, 404} {
		var told []int
		rec := httptest.NewRecorder()
		w := &watcher{ResponseWriter: rec, before: func(status int, h http.Header) bool { told = append(told, status); return true }}
		w.WriteHeader(103)
		w.WriteHeader(status)
		w.WriteHeader(500)
		w.end()
		want(t, "told", fmt.Sprint(told), fmt.Sprint([]int{status}))
	}
}

// A connection that a handler has taken is nobody else's: the mark stays, and nothing more is written to it.
func TestAMarkStaysOfWhatIsHijacked(t *testing.T) {
	for _, fails := range []bool{false, true} {
		rec := &hijacked{ResponseRecorder: httptest.NewRecorder(), fails: fails}
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if rec.taken {
				_, _, _ = http.NewResponseController(w).Hijack()
				return
			}
			answers("x", "Cache-Control: private")(w, nil)
		})
		s.do("GET", "/")
		rec.taken = true
		s.ServeHTTP(rec, httptest.NewRequest("GET", "http://host/", nil))
		want(t, "headers written", rec.headers, map[bool]int{false: 0, true: 1}[fails])
		e, err := s.mw.cache.Lookup(t.Context(), target{"http", "host", "/"}.key("GET"))
		want(t, "the mark is there", err == nil && e.Value.Mark != nil, true)
	}
}

// hijacked is a writer whose connection can be taken.
type hijacked struct {
	*httptest.ResponseRecorder
	taken, fails bool
	headers      int
}

func (h *hijacked) WriteHeader(status int) { h.headers++; h.ResponseRecorder.WriteHeader(status) }

func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if h.fails {
		return nil, nil, http.ErrNotSupported
	}
	return nil, nil, nil
}
