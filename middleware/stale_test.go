package middleware

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestStaleness(t *testing.T) {
	none := Route{}
	both := Route{StaleWhileRevalidate: time.Minute, StaleIfError: time.Hour}
	off := Route{StaleWhileRevalidate: -1, StaleIfError: -1}
	for _, c := range []struct {
		route          Route
		control        string
		while, onError time.Duration
	}{
		{none, "max-age=1", 0, 0},
		{off, "max-age=1", 0, 0},
		{both, "max-age=1", time.Minute, time.Hour},
		{both, "", time.Minute, time.Hour},
		// The response has the last word (RFC 5861 3, 4).
		{none, "stale-while-revalidate=5, stale-if-error=6", 5 * time.Second, 6 * time.Second},
		{both, "stale-while-revalidate=5", 5 * time.Second, time.Hour},
		{both, "stale-if-error=6", time.Minute, 6 * time.Second},
		{both, "stale-while-revalidate=0, stale-if-error=0", 0, 0},
		{both, "stale-while-revalidate=x, stale-if-error", 0, 0},
		// These forbid it (RFC 9111 4.2.4).
		{both, "must-revalidate, stale-while-revalidate=5", 0, 0},
		{both, "proxy-revalidate, stale-if-error=5", 0, 0},
		{both, "s-maxage=5", 0, 0},
		{both, "no-cache", 0, 0},
		{both, `no-cache="X"`, 0, 0},
	} {
		while, onError := c.route.staleness(parseControl([]string{c.control}))
		if while != c.while || onError != c.onError {
			t.Errorf("%q: got %v and %v, want %v and %v", c.control, while, onError, c.while, c.onError)
		}
	}
}

func TestIsError(t *testing.T) {
	for status := range 600 {
		is := status == 500 || status == 502 || status == 503 || status == 504
		want(t, "isError "+strconv.Itoa(status), isError(status), is)
	}
}

func TestInsteadOfError(t *testing.T) {
	old := func(age time.Duration, fresh, onError time.Duration) (entry, bool) {
		p := &page{Fresh: fresh, OnError: onError, Age: 2 * time.Second}
		return p.insteadOfError(entry{Value: storedPage(p), Age: age})
	}
	if _, ok := old(0, time.Minute, 0); ok {
		t.Error("a page was served that may not be when the handler fails")
	}
	if _, ok := old(58*time.Second+time.Minute, time.Minute, time.Minute); ok {
		t.Error("a page was served that is too old")
	}
	e, ok := old(time.Minute, time.Minute, time.Minute)
	want(t, "served", ok, true)
	want(t, "age", e.Value.Page.Age, time.Minute+2*time.Second)
	want(t, "until the next run", e.StaleFor, errorGrace)
	want(t, "all it may be served", e.StaleFor+e.KeepFor, 58*time.Second)
	e, ok = old(117*time.Second+500*time.Millisecond, time.Minute, time.Minute)
	want(t, "served at the end", ok, true)
	want(t, "for no longer than it may be", e.StaleFor, 500*time.Millisecond)
	want(t, "and not kept", e.KeepFor, -1)
}

// A page is served stale at once, renewed by one run, and not beyond its time.
func TestStaleWhileRevalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *site
		s = serve(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			answers(strconv.FormatInt(s.runs.Load(), 10), "Cache-Control: max-age=10, stale-while-revalidate=20")(w, r)
		})
		ask := func(wantBody string, wantWait time.Duration) {
			t.Helper()
			began := time.Now()
			want(t, "body", bodyOf(t, s.get("http://a.example/")), wantBody)
			want(t, "wait", time.Since(began).Truncate(time.Second), wantWait)
		}
		ask("1", time.Second)
		time.Sleep(12 * time.Second)
		ask("1", 0)
		ask("1", 0)
		time.Sleep(2 * time.Second)
		ask("2", 0)
		wantRuns(t, s, 2)
		time.Sleep(time.Minute)
		ask("3", time.Second)
	})
}

// When the handler fails an older page is served, if it may be, with its age.
func TestStaleIfError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := false
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if fails {
				http.Error(w, "sorry", http.StatusServiceUnavailable)
				return
			}
			answers("page", "Cache-Control: max-age=10, stale-if-error=50")(w, r)
		})
		s.get("http://a.example/")
		fails = true
		time.Sleep(30 * time.Second)
		r := s.get("http://a.example/")
		want(t, "status", r.StatusCode, 200)
		want(t, "body", bodyOf(t, r), "page")
		want(t, "Age", r.Header.Get("Age"), "30")
		time.Sleep(31 * time.Second)
		want(t, "status beyond the time", s.get("http://a.example/").StatusCode, 503)
	})
}

func TestOrNone(t *testing.T) {
	for d, kept := range map[time.Duration]time.Duration{-5: -1, 0: -1, time.Microsecond: -1, time.Millisecond: time.Millisecond, time.Hour: time.Hour} {
		want(t, d.String(), orNone(d), kept)
	}
}
