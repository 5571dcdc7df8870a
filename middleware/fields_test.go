package middleware

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStoredFields(t *testing.T) {
	o, err := Options{Route: Route{NotStored: []string{"x-request-ID"}}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	from := header(
		"Content-Type: text/html", "Etag: \"1\"", "Link: </a>", "Link: </b>", "Server-Timing: db", // stored: another list was named
		"Connection: close, X-Hop", "Connection: x-other-hop", "X-Hop: 1", "X-Other-Hop: 1", "Keep-Alive: timeout=5",
		"Proxy-Authenticate: Basic", "Proxy-Authentication-Info: a", "Proxy-Authorization: b", "Proxy-Connection: close",
		"Te: trailers", "Trailer: X-Sum", "Transfer-Encoding: chunked", "Upgrade: h2c",
		"X-Request-Id: 7", "Age: 3", `Cache-Status: "up"; hit`, "Date: "+httpDate(-time.Hour))
	from[http.TrailerPrefix+"X-Sum"] = []string{"9"}
	before := from.Clone()
	got := o.storedFields(from, noon)
	want(t, "stored", strings.Join(slices.Sorted(maps.Keys(got)), " "), "Content-Type Date Etag Link Server-Timing")
	want(t, "Date", got.Get("Date"), httpDate(-time.Hour))
	want(t, "lines of Link", len(got["Link"]), 2)
	got["Link"][0] = "changed"
	if !reflect.DeepEqual(from, before) {
		t.Errorf("the response has changed: %v", from)
	}
	want(t, "a Date that was missing", o.storedFields(http.Header{}, noon).Get("Date"), httpDate(0))

	defaults, _ := Options{}.complete()
	from = header("X-Request-Id: 7", "Traceparent: 1", "Tracestate: 1", "Server-Timing: db", "X: 1")
	want(t, "stored by default", strings.Join(slices.Sorted(maps.Keys(defaults.storedFields(from, noon))), " "), "Date X")
}

// RFC 9111 3.2: a 304 brings new fields, but none that describe the body, and none that would not be stored.
func TestUpdated(t *testing.T) {
	o, _ := Options{}.complete()
	stored := header(`Etag: "1"`, "Content-Length: 4", "Content-Encoding: gzip", "Cache-Control: max-age=1", "X: old", "Y: old", "Date: "+httpDate(-time.Hour))
	before := stored.Clone()
	got := o.updated(stored, header(`Etag: W/"1"`, "Content-Length: 0", "Content-Encoding: br", "Content-Range: bytes 0-0/1", "Content-Md5: x",
		"Cache-Control: max-age=2", "X: new", "X: newer", "Connection: Z", "Z: 1", "X-Request-Id: 7", "Age: 5"), noon)
	if wanted := header(`Etag: "1"`, "Content-Length: 4", "Content-Encoding: gzip", "Cache-Control: max-age=2", "X: new", "X: newer", "Y: old",
		"Date: "+httpDate(0)); !reflect.DeepEqual(got, wanted) {
		t.Errorf("got %v, want %v", got, wanted)
	}
	if !reflect.DeepEqual(stored, before) {
		t.Errorf("what was stored has changed: %v", stored)
	}
}

// A 304 refreshes what is stored: who comes later gets its fields, and the old body without a run. It comes through other
// caches too: then the page is as old as it says.
func TestNotModifiedRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var s *site
		s = serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Header.Get("If-None-Match"))
			w.Header().Set("Etag", `"1"`)
			if s.runs.Load() == 1 {
				answers("page", "Cache-Control: max-age=10", "X: old")(w, r)
				return
			}
			w.Header().Set("Cache-Control", "max-age=600")
			w.Header().Set("X", "new")
			w.Header().Set("Age", "100")
			w.WriteHeader(http.StatusNotModified)
		})
		s.get("http://a.example/")
		time.Sleep(time.Minute)
		for range 2 {
			r := s.get("http://a.example/")
			want(t, "status", r.StatusCode, 200)
			want(t, "body", bodyOf(t, r), "page")
			want(t, "X", r.Header.Get("X"), "new")
			want(t, "Cache-Control", r.Header.Get("Cache-Control"), "max-age=600")
			want(t, "Date", r.Header.Get("Date"), time.Now().UTC().Format(http.TimeFormat))
			want(t, "Age", r.Header.Get("Age"), "100")
		}
		want(t, "asked", strings.Join(asked, " "), ` "1"`)
	})
}

// What other middlewares have set stays, and what is stored is not theirs to change.
func TestCopyFields(t *testing.T) {
	to := header("Vary: Origin", "Set-Cookie: outer=1", "X-Outer: 1", "Content-Type: text/plain")
	from := header("Vary: Accept", "Set-Cookie: inner=1", "Set-Cookie: inner=2", "Content-Type: text/html", "Link: </a>", "Link: </b>")
	before := from.Clone()
	copyFields(to, from)
	if wanted := header("Vary: Origin", "Vary: Accept", "Set-Cookie: outer=1", "Set-Cookie: inner=1", "Set-Cookie: inner=2", "X-Outer: 1",
		"Content-Type: text/html", "Link: </a>", "Link: </b>"); !reflect.DeepEqual(to, wanted) {
		t.Errorf("got %v, want %v", to, wanted)
	}
	for name := range to {
		to[name][0] = "changed"
		to[name] = append(to[name], "more")
	}
	if !reflect.DeepEqual(from, before) {
		t.Errorf("what is stored has changed: %v", from)
	}
	for name, values := range to { // an append to one field does not overwrite its neighbour
		if slices.Contains(values[1:len(values)-1], "more") || values[len(values)-1] != "more" {
			t.Errorf("%s is %q", name, values)
		}
	}
	to = http.Header{}
	copyFields(to, from)
	if !reflect.DeepEqual(to, from) {
		t.Errorf("got %v, want %v", to, from)
	}
}

// Outer middlewares keep their fields on a miss and on a hit.
func TestOuterFieldsStay(t *testing.T) {
	s := serve(t, answers("page", "Cache-Control: max-age=60", "Vary: Accept"))
	for range 2 {
		w := &recorded{http.Header{"Vary": {"Origin"}, "X-Outer": {"1"}}, 0}
		r, _ := http.NewRequest(http.MethodGet, "http://a.example/", nil)
		s.ServeHTTP(w, r)
		want(t, "Vary", strings.Join(w.header["Vary"], "; "), "Origin; Accept")
		want(t, "X-Outer", w.header.Get("X-Outer"), "1")
		want(t, "status", w.status, 200)
	}
	wantRuns(t, s, 1)
}

// recorded is a writer that has fields already.
type recorded struct {
	header http.Header
	status int
}

func (w *recorded) Header() http.Header         { return w.header }
func (w *recorded) Write(p []byte) (int, error) { return len(p), nil }
func (w *recorded) WriteHeader(status int)      { w.status = status }
