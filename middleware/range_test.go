package middleware

import (
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
)

const digits = "0123456789"

// ranged is a site whose page is stored.
func ranged(t testing.TB) *site {
	t.Helper()
	s := serve(t, answers(digits, "Cache-Control: max-age=60", `Etag: "1"`, "Content-Type: text/plain", "Last-Modified: Fri, 02 Jan 2026 12:00:00 GMT"))
	s.get("http://a.example/")
	return s
}

// RFC 9110 14: parts of a stored page.
func TestRange(t *testing.T) {
	s := ranged(t)
	const all = "" // no Content-Range
	for _, c := range []struct {
		fields       string // separated by "|"
		status       int
		body         string
		contentRange string
	}{
		{"Range: bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"Range: bytes=0-0", 206, "0", "bytes 0-0/10"},
		{"Range: bytes=7-", 206, "789", "bytes 7-9/10"},
		{"Range: bytes=7-99", 206, "789", "bytes 7-9/10"},
		{"Range: bytes=-3", 206, "789", "bytes 7-9/10"},
		{"Range: bytes=-99", 206, digits, "bytes 0-9/10"},
		{"Range: bytes=10-", 416, "", "bytes */10"},
		{"Range: bytes=99-100,200-", 416, "", "bytes */10"},
		{"Range: bytes=8-,0-1,99-", 206, "89+01", all}, // multipart
		{"Range: bytes=0-,0-", 200, digits, all},       // more than all

		{`Range: bytes=2-4|If-Range: "1"`, 206, "234", "bytes 2-4/10"},
		{`Range: bytes=2-4|If-Range: "2"`, 200, digits, all},
		{`Range: bytes=2-4|If-Range: W/"1"`, 200, digits, all}, // 13.1.5: strong comparison
		{"Range: bytes=2-4|If-Range: Fri, 02 Jan 2026 12:00:00 GMT", 206, "234", "bytes 2-4/10"},
		{"Range: bytes=2-4|If-Range: Fri, 02 Jan 2026 12:00:01 GMT", 200, digits, all},
		{`Range: bytes=2-4|If-None-Match: W/"1"`, 304, "", all},
		{`Range: bytes=2-4|If-None-Match: "2"`, 206, "234", "bytes 2-4/10"},
		{"Range: bytes=2-4|If-Modified-Since: Fri, 02 Jan 2026 12:00:00 GMT", 304, "", all},
		{`If-Range: "1"`, 200, digits, all}, // nothing without Range
	} {
		r := s.get("http://a.example/", strings.Split(c.fields, "|")...)
		want(t, c.fields+": status", r.StatusCode, c.status)
		want(t, c.fields+": Content-Range", r.Header.Get("Content-Range"), c.contentRange)
		if !strings.HasPrefix(r.Header.Get("Cache-Status"), "stockade; hit; ttl=") {
			t.Errorf("%s: Cache-Status is %q", c.fields, r.Header.Get("Cache-Status"))
		}
		switch {
		case c.status == http.StatusRequestedRangeNotSatisfiable:
		case strings.Contains(c.body, "+"):
			want(t, c.fields+": parts", strings.Join(parts(t, r), "+"), c.body)
		default:
			want(t, c.fields+": body", bodyOf(t, r), c.body)
			if r.StatusCode != http.StatusNotModified {
				want(t, c.fields+": Content-Length", r.Header.Get("Content-Length"), fmt.Sprint(len(c.body)))
			}
		}
	}
	wantRuns(t, s, 1)
}

// A part has bytes, or there is no way to say which it is: what asks for none gets everything.
func TestRangeWithoutBytes(t *testing.T) {
	s := ranged(t)
	for _, value := range []string{"bytes=-0", "bytes=-00", "bytes=- 0", "bytes=-+0", "bytes=0-1,\t-0"} {
		r := s.get("http://a.example/", "Range: "+value)
		want(t, value+": status", r.StatusCode, 200)
		want(t, value+": body", bodyOf(t, r), digits)
	}
	empty := serve(t, answers("", "Cache-Control: max-age=60"))
	empty.get("http://a.example/")
	for _, value := range []string{"bytes=0-", "bytes=-5", "bytes=0-1"} {
		r := empty.get("http://a.example/", "Range: "+value)
		want(t, value+" of nothing: status", r.StatusCode, 200)
		want(t, value+" of nothing: Content-Range", r.Header.Get("Content-Range"), "")
	}
}

// HEAD has no parts (RFC 9110 14.2).
func TestRangeOfHead(t *testing.T) {
	s := ranged(t)
	r := s.send(http.MethodHead, "http://a.example/", "Range: bytes=2-4")
	want(t, "status", r.StatusCode, 200)
	want(t, "body", bodyOf(t, r), "")
	wantRuns(t, s, 1)
}

// What is not stored the handler is asked for, part or whole. A part is not stored.
func TestRangeOfNothing(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		if r.Header.Get("Range") == "bytes=2-4" && r.Header.Get("If-Range") == `"1"` {
			w.Header().Set("Content-Range", "bytes 2-4/10")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "234")
			return
		}
		_, _ = io.WriteString(w, digits)
	})
	for range 2 {
		r := s.get("http://a.example/", "Range: bytes=2-4", `If-Range: "1"`)
		want(t, "status", r.StatusCode, 206)
		want(t, "body", bodyOf(t, r), "234")
		want(t, "Cache-Status", r.Header.Get("Cache-Status"), "stockade; fwd=bypass; fwd-status=206; detail=range")
	}
	want(t, "all", bodyOf(t, s.get("http://a.example/")), digits)
	wantRuns(t, s, 3)
}

// An error has no parts: it is served as it is.
func TestRangeOfAnError(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, digits)
	})
	s.get("http://a.example/")
	r := s.get("http://a.example/", "Range: bytes=2-4")
	want(t, "status", r.StatusCode, 404)
	want(t, "body", bodyOf(t, r), digits)
	wantRuns(t, s, 1)
}

// parts are the bodies of a multipart response. Each is where its Content-Range says.
func parts(t testing.TB, r *http.Response) []string {
	t.Helper()
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/byteranges" {
		t.Fatalf("Content-Type is %q: %v", r.Header.Get("Content-Type"), err)
	}
	var bodies []string
	for reader := multipart.NewReader(r.Body, params["boundary"]); ; {
		part, err := reader.NextPart()
		if err == io.EOF {
			return bodies
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "part", string(body), partOf(part.Header.Get("Content-Range")))
		bodies = append(bodies, string(body))
	}
}

// partOf is the part of the page that a Content-Range names.
func partOf(contentRange string) string {
	var first, last, of int
	if n, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &of); n != 3 || err != nil || first > last || last >= of || of != len(digits) {
		return "no part: " + contentRange
	}
	return digits[first : last+1]
}

// FuzzRange: whatever is asked for, the answer is a part of the page, all of it, or that there is no such part.
func FuzzRange(f *testing.F) {
	for _, value := range []string{"", "bytes=0-1", "bytes=-1", "bytes=5-", "bytes=1-2,4-5", "bytes=9-1", "bytes=-0", "bytes=99-", "bits=0-1", "bytes=0-0,0-0,0-0", "bytes=18446744073709551616-", "bytes=,,1-1", "bytes = 1 - 2", "bytes=-+0", "bytes=- 00 ", "bytes=1-2,-0"} {
		f.Add(value, `"1"`)
	}
	s := ranged(f)
	f.Fuzz(func(t *testing.T, value, ifRange string) {
		r := s.get("http://a.example/", "Range: "+value, "If-Range: "+ifRange)
		switch r.StatusCode {
		case http.StatusOK:
			want(t, "body", bodyOf(t, r), digits)
		case http.StatusPartialContent:
			if r.Header.Get("Content-Range") == "" {
				parts(t, r)
				return
			}
			want(t, "body", bodyOf(t, r), partOf(r.Header.Get("Content-Range")))
		case http.StatusRequestedRangeNotSatisfiable:
		default:
			t.Errorf("%q, %q: status %d", value, ifRange, r.StatusCode)
		}
		wantRuns(t, s, 1)
	})
}

// A part of an encoded page has the length of the part, if it has any (RFC 9110 8.6).
func TestRangeOfAnEncodedPage(t *testing.T) {
	s := serve(t, answers(digits, "Cache-Control: max-age=60", "Content-Encoding: gzip", "Content-Length: 10"))
	for range 2 {
		s.get("http://a.example/", "Accept-Encoding: gzip")
	}
	r := s.get("http://a.example/", "Accept-Encoding: gzip", "Range: bytes=2-4")
	want(t, "status", r.StatusCode, 206)
	want(t, "body", bodyOf(t, r), "234")
	if length := r.Header.Get("Content-Length"); length != "" && length != "3" {
		t.Errorf("Content-Length %s", length)
	}
}
