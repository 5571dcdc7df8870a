package middleware

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWithoutConditions(t *testing.T) {
	h := header(`If-Match: "1"`, `If-None-Match: "1"`, "If-Modified-Since: x", "If-Unmodified-Since: x", "If-Range: x", "Range: bytes=0-", "Accept: */*")
	withoutConditions(h)
	want(t, "left", strings.Join(slices.Sorted(maps.Keys(h)), " "), "Accept")
}

func TestConditional(t *testing.T) {
	for fields, wanted := range map[string][2]string{
		`Etag: "1"`:                     {`"1"`, ""},
		"Last-Modified: " + httpDate(0): {"", httpDate(0)},
		"":                              {"", ""},
	} {
		h := http.Header{}
		conditional(h, &page{Header: header(fields)})
		want(t, "If-None-Match of "+fields, h.Get("If-None-Match"), wanted[0])
		want(t, "If-Modified-Since of "+fields, h.Get("If-Modified-Since"), wanted[1])
	}
}

// RFC 9110 13.1.2, 13.1.3, 13.2.2.
func TestNotModified(t *testing.T) {
	const etag = `Etag: "1"`
	modified := "Last-Modified: " + httpDate(0)
	since := func(d time.Duration) string { return "If-Modified-Since: " + httpDate(d) }
	for _, c := range []struct {
		request, response []string
		is                bool
	}{
		{nil, []string{etag, modified}, false},
		{[]string{`If-None-Match: "1"`}, []string{etag}, true},
		{[]string{`If-None-Match: "2"`}, []string{etag}, false},
		{[]string{`If-None-Match: W/"1"`}, []string{etag}, true}, // 8.8.3.2: weak comparison
		{[]string{`If-None-Match: "1"`}, []string{`Etag: W/"1"`}, true},
		{[]string{`If-None-Match: W/"1"`}, []string{`Etag: W/"1"`}, true},
		{[]string{`If-None-Match: w/"1"`}, []string{etag}, false}, // the W is in one case
		{[]string{`If-None-Match: 1`}, []string{etag}, false},
		{[]string{`If-None-Match: "0", W/"1" ,"2"`}, []string{etag}, true},
		{[]string{`If-None-Match: "0"`, `If-None-Match: "1"`}, []string{etag}, true},
		{[]string{`If-None-Match: "a,1", "b"`}, []string{`Etag: "a,1"`}, true},
		{[]string{`If-None-Match: "a,1"`}, []string{`Etag: "a"`}, false},
		{[]string{`If-None-Match: "a\", "1"`}, []string{etag}, true}, // 8.8.3: a backslash is one
		{[]string{`If-None-Match: "a\"`}, []string{`Etag: "a\"`}, true},
		{[]string{"If-None-Match: *"}, []string{etag}, true},
		{[]string{"If-None-Match: *"}, nil, true},
		{[]string{`If-None-Match: "*"`}, []string{etag}, false},
		{[]string{"If-None-Match: "}, []string{etag}, false},
		{[]string{`If-None-Match: ""`}, nil, false},
		{[]string{`If-None-Match: "1"`}, nil, false},
		// If-None-Match alone counts where both are.
		{[]string{`If-None-Match: "2"`, since(0)}, []string{etag, modified}, false},
		{[]string{`If-None-Match: "1"`, since(-time.Hour)}, []string{etag, modified}, true},
		{[]string{"If-None-Match: ", since(0)}, []string{modified}, false},

		{[]string{since(0)}, []string{modified}, true},
		{[]string{since(time.Second)}, []string{modified}, true},
		{[]string{since(-time.Second)}, []string{modified}, false},
		{[]string{"If-Modified-Since: x"}, []string{modified}, false},
		{[]string{"If-Modified-Since: "}, []string{modified}, false},
		{[]string{"If-Modified-Since: Friday, 02-Jan-26 12:00:00 GMT"}, []string{modified}, true},
		// Without Last-Modified it is as if the page had been made when it says that it was (RFC 9111 4.3.2).
		{[]string{since(0)}, []string{"Date: " + httpDate(0)}, true},
		{[]string{since(-time.Second)}, []string{"Date: " + httpDate(0)}, false},
		{[]string{since(0)}, []string{"Last-Modified: x", "Date: " + httpDate(time.Hour)}, false},
		{[]string{since(0)}, nil, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = header(c.request...)
		if got := notModified(r, header(c.response...)); got != c.is {
			t.Errorf("%q of %q: got %v", c.request, c.response, got)
		}
	}
}

// A client that has the page gets 304, on a miss and on a hit; one that has not gets the page. The handler never sees why.
func TestConditionalRequests(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		answers("page", "Cache-Control: max-age=60", `Etag: "1"`, "Last-Modified: "+httpDate(0), "Content-Language: en", "Content-Location: /p", "Expires: 0", "Vary: Accept",
			"Content-Security-Policy: sandbox", "Content-Security-Policy-Report-Only: sandbox")(w, r)
	})
	for range 2 {
		r := s.get("http://a.example/", `If-None-Match: W/"1"`)
		want(t, "status", r.StatusCode, 304)
		want(t, "body", bodyOf(t, r), "")
		for _, name := range []string{"Etag", "Date", "Vary", "Cache-Control", "Expires", "Content-Location", "Content-Security-Policy", "Content-Security-Policy-Report-Only"} { // RFC 9110 15.4.5
			if name != "Date" && r.Header.Get(name) == "" {
				t.Errorf("a 304 without %s: %v", name, r.Header)
			}
		}
		for _, name := range []string{"Content-Type", "Content-Length", "Content-Language", "Last-Modified"} {
			if r.Header.Get(name) != "" {
				t.Errorf("a 304 with %s: %v", name, r.Header)
			}
		}
		r = s.get("http://a.example/", `If-None-Match: "2"`)
		want(t, "status", r.StatusCode, 200)
		want(t, "body", bodyOf(t, r), "page")
	}
	wantRuns(t, s, 1)
}

// Only a page is compared: an error has no part in a client's conditions (RFC 9110 13.2.1).
func TestConditionsAreOfAPage(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.WriteHeader(http.StatusNotFound)
	})
	for range 2 {
		want(t, "status", s.get("http://a.example/", "If-None-Match: *").StatusCode, 404)
	}
	wantRuns(t, s, 1)
}
