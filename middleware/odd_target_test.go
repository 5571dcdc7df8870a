package middleware

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// raw sends bytes as they are and returns the answer.
func (f *front) raw(t testing.TB, sent string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(soon))
	if _, err := io.WriteString(conn, sent); err != nil {
		return reply{err: err}
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return reply{err: err}
	}
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(body), err}
}

// Whatever is asked for, nobody gets what something else is (aspnetcore#67763: all URLs that have no key share one).
func TestOddTargets(t *testing.T) {
	long := strings.Repeat("0123456789", 90_000)
	requests := []string{ // no two of them ask for the same
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a:81\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"GET /? HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET // HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET //a/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /A HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /a/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%61 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /a/b HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /a/./b HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=%1E HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=%1F HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=%zz HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=%zy HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=1;b=2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=1&b=2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?b=2&a=1 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=\xff HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?a=\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%FF HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /{a} HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%7Ba%7D HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /" + long + "1 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /" + long + "2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://c/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET https://c/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET ftp://c/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://c/?x HTTP/1.1\r\nHost: a\r\n\r\n",
	}
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = fmt.Fprintf(w, "%s %s %s", r.URL.Scheme, r.Host, r.RequestURI)
	})
	got := map[string]string{}
	for round := range 3 {
		for _, sent := range requests {
			r := f.raw(t, sent)
			switch {
			case r.err != nil:
				t.Errorf("%.60q: %v", sent, r.err)
			case round == 0 && r.status == http.StatusBadRequest: // the server did not let it in
			case round == 0:
				for other, body := range got {
					if body == r.body {
						t.Errorf("%.60q got what %.60q is", sent, other)
					}
				}
				got[sent] = r.body
			case got[sent] != "" && r.body != got[sent]:
				t.Errorf("%.60q got %.60q, and %.60q before", sent, r.body, got[sent])
			}
		}
	}
	if len(got) < len(requests)-5 {
		t.Errorf("only %d of %d requests came to the handler", len(got), len(requests))
	}
}

// Another spelling of a target that means the same may share.
func TestSpellingsOfOneTarget(t *testing.T) {
	var m meter
	f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, _ *http.Request) {
		defer m.run()()
		w.Header().Set("Cache-Control", "max-age=60")
	})
	for _, sent := range []string{
		"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x HTTP/1.1\r\nHost: A:80\r\n\r\n", "GET http://a/x HTTP/1.1\r\nHost: b\r\n\r\n",
	} {
		f.raw(t, sent).want(t, 200, "")
	}
	if m.runs.Load() != 1 {
		t.Errorf("%d runs for one page", m.runs.Load())
	}
}
