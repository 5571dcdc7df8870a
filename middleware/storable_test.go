package middleware

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Each rule of what may be stored and shared, with its section of RFC 9111.
func TestStorable(t *testing.T) {
	const etag = `Etag: "1"`
	type fields = []string
	plain, credentials, asksNot := fields{}, fields{"Authorization: Basic x"}, fields{"Cache-Control: no-store"}
	for _, c := range []struct {
		rule     string
		route    Route
		request  fields
		status   int
		response fields
		refused  string // empty: it is stored
		validate bool   // but only to be validated
	}{
		{"3: explicit freshness", Route{}, plain, 200, fields{"Cache-Control: max-age=60"}, "", false},
		{"3: s-maxage", Route{}, plain, 200, fields{"Cache-Control: s-maxage=60"}, "", false},
		{"3: Expires", Route{}, plain, 200, fields{"Date: " + httpDate(0), "Expires: " + httpDate(time.Minute)}, "", false},
		{"3: nothing said", Route{}, plain, 200, nil, "no-freshness", false},
		{"3: public is no freshness", Route{}, plain, 200, fields{"Cache-Control: public"}, "no-freshness", false},
		{"3: not final", Route{TTL: time.Hour}, plain, 103, fields{"Cache-Control: max-age=60"}, "status", false},
		{"3.3: a part", Route{TTL: time.Hour}, plain, 206, fields{"Cache-Control: max-age=60"}, "status", false},
		{"3: 304 is no response of its own", Route{TTL: time.Hour}, plain, 304, fields{"Cache-Control: max-age=60"}, "status", false},
		{"3: any final status with freshness", Route{}, plain, 302, fields{"Cache-Control: max-age=60"}, "", false},
		{"3: an error with freshness", Route{}, plain, 500, fields{"Cache-Control: max-age=60"}, "", false},
		{"3: an unknown status with freshness", Route{}, plain, 299, fields{"Cache-Control: max-age=60"}, "", false},

		{"5.2.2.3: must-understand", Route{}, plain, 200, fields{"Cache-Control: must-understand, no-store, max-age=60"}, "", false},
		{"5.2.2.3: an unknown status", Route{}, plain, 299, fields{"Cache-Control: must-understand, max-age=60"}, "must-understand", false},
		{"5.2.2.3: an unknown status, no-store", Route{}, plain, 299, fields{"Cache-Control: must-understand, no-store, max-age=60"}, "must-understand", false},
		{"5.2.2.3: it does not undo private", Route{}, plain, 200, fields{"Cache-Control: must-understand, no-store, private, max-age=60"}, "private", false},
		{"5.2.2.5: no-store", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: no-store, max-age=60"}, "no-store", false},
		{"5.2.2.5: on a line of its own", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: max-age=60", "Cache-Control: No-Store"}, "no-store", false},
		{"5.2.2.7: private", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: private, max-age=60"}, "private", false},
		{"5.2.2.7: private with fields", Route{TTL: time.Hour}, plain, 200, fields{`Cache-Control: private="X-User", max-age=60`}, "private", false},
		{"5.2.2.7: private beats public", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: public, private, s-maxage=60"}, "private", false},

		{"5.2.2.4: no-cache", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: no-cache, max-age=60"}, "no-cache", false},
		{"5.2.2.4: no-cache with fields", Route{TTL: time.Hour}, plain, 200, fields{`Cache-Control: no-cache="X-User", max-age=60`}, "no-cache", false},
		{"5.2.2.4: no-cache with a validator", Route{}, plain, 200, fields{"Cache-Control: no-cache", etag}, "", true},
		{"5.2.2.4: no-cache, Last-Modified", Route{}, plain, 200, fields{"Cache-Control: no-cache", "Last-Modified: " + httpDate(-time.Hour)}, "", true},
		{"5.2.2.4: no-cache that is not kept", Route{KeepFor: -1}, plain, 200, fields{"Cache-Control: no-cache", etag}, "no-cache", false},
		{"5.2.2.4: no-cache forbids what the route allows", Route{TTL: time.Hour, StaleWhileRevalidate: time.Hour}, plain, 200, fields{"Cache-Control: no-cache"}, "no-cache", false},
		{"4.2.4: max-age=0", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: max-age=0"}, "no-freshness", false},
		{"4.2.4: max-age=0 with a validator", Route{}, plain, 200, fields{"Cache-Control: max-age=0", etag}, "", true},
		{"5861 3: max-age=0 that may be served stale", Route{}, plain, 200, fields{"Cache-Control: max-age=0, stale-while-revalidate=5"}, "", false},
		{"5861 3: max-age=0 that the route serves stale", Route{StaleWhileRevalidate: time.Minute}, plain, 200, fields{"Cache-Control: max-age=0"}, "", false},
		{"5.2.2.2: max-age=0, must-revalidate", Route{StaleWhileRevalidate: time.Minute}, plain, 200, fields{"Cache-Control: max-age=0, must-revalidate"}, "no-freshness", false},
		{"4.2.3: stale when it came", Route{}, plain, 200, fields{"Cache-Control: max-age=60", "Age: 60"}, "no-freshness", false},
		{"4.2.3: not yet stale when it came", Route{}, plain, 200, fields{"Cache-Control: max-age=60", "Age: 59"}, "", false},
		{"4.2.3: stale when it came, with a validator", Route{}, plain, 200, fields{"Cache-Control: max-age=60", "Age: 61", etag}, "", true},
		{"4.2.3: stale by its Date", Route{}, plain, 200, fields{"Cache-Control: max-age=60", "Date: " + httpDate(-time.Hour)}, "no-freshness", false},
		{"4.2.1: unreadable freshness is none", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: max-age=x"}, "no-freshness", false},
		{"only 200 is validated", Route{}, plain, 404, fields{"Cache-Control: max-age=0", etag}, "no-freshness", false},

		// What says nothing of its freshness has none that could end: it is not served stale.
		{"4.2.4: nothing said", Route{StaleWhileRevalidate: time.Minute}, plain, 200, nil, "no-freshness", false},
		{"4.2.4: an error that says nothing", Route{StaleWhileRevalidate: time.Minute}, plain, 500, nil, "no-freshness", false},
		{"4.2.4: a 302 that says nothing", Route{TTL: time.Hour, StaleWhileRevalidate: time.Minute}, plain, 302, nil, "no-freshness", false},
		{"4.2.4: an error that says only that", Route{}, plain, 500, fields{"Cache-Control: stale-while-revalidate=60"}, "no-freshness", false},

		{"3.5: Authorization", Route{}, credentials, 200, fields{"Cache-Control: max-age=60"}, "authorization", false},
		{"3.5: the route's TTL is no permission", Route{TTL: time.Hour}, credentials, 200, nil, "authorization", false},
		{"3.5: public", Route{}, credentials, 200, fields{"Cache-Control: public, max-age=60"}, "", false},
		{"3.5: s-maxage", Route{}, credentials, 200, fields{"Cache-Control: s-maxage=60"}, "", false},
		{"3.5: must-revalidate", Route{}, credentials, 200, fields{"Cache-Control: must-revalidate, max-age=60"}, "", false},
		{"3.5: proxy-revalidate does not count", Route{}, credentials, 200, fields{"Cache-Control: proxy-revalidate, max-age=60"}, "authorization", false},
		{"5.2.1.5: the request's no-store", Route{TTL: time.Hour}, asksNot, 200, fields{"Cache-Control: max-age=60"}, "request-no-store", false},
		{"4.1: Vary: *", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: max-age=60", "Vary: *"}, "vary", false},
		{"4.1: Vary: * among others", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: max-age=60", "Vary: Accept, *", "Vary: X"}, "vary", false},
		{"4.1: Vary", Route{}, plain, 200, fields{"Cache-Control: max-age=60", "Vary: Accept, X*"}, "", false},
		{"7.3: Set-Cookie", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: public, max-age=60", "Set-Cookie: a=b"}, "set-cookie", false},
		{"7.3: Set-Cookie by option", Route{SetCookie: true}, plain, 200, fields{"Cache-Control: max-age=60", "Set-Cookie: a=b"}, "", false},
		{"a stream of events", Route{TTL: time.Hour}, plain, 200, fields{"Cache-Control: max-age=60", "Content-Type: Text/Event-Stream ; charset=utf-8"}, "stream", false},
		{"no stream of events", Route{}, plain, 200, fields{"Cache-Control: max-age=60", "Content-Type: text/event-streams"}, "", false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			o, err := Options{Route: c.route}.complete()
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header = header(c.request...)
			terms, refused := o.storable(r, c.status, header(c.response...), noon)
			want(t, "refused", refused, c.refused)
			if refused == "" {
				want(t, "validate", terms.validate, c.validate)
			}
		})
	}
}

// The TTL of a route is for some statuses, and for what says nothing itself.
func TestStorableByTTL(t *testing.T) {
	o, err := Options{Route: Route{TTL: time.Hour}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	byTTL := []int{200, 203, 204, 300, 301, 308, 404, 410}
	for status := 200; status < 600; status++ {
		terms, refused := o.storable(r, status, http.Header{}, noon)
		is := refused == "" && terms.fresh == time.Hour && !terms.validate
		want(t, strconv.Itoa(status), is, slices.Contains(byTTL, status))
	}
	terms, _ := o.storable(r, 200, header("Cache-Control: max-age=5"), noon)
	want(t, "the response's own word", terms.fresh, 5*time.Second)
}

// The terms tell the cache when a page is fresh, stale and gone.
func TestLifetimes(t *testing.T) {
	route := &Route{HitForMiss: 7 * time.Second}
	const s = time.Second
	for _, c := range []struct {
		what              string
		terms             terms
		took              time.Duration
		ttl, stale, keeps time.Duration
	}{
		{"fresh", terms{fresh: 60 * s}, 0, 60 * s, -1, -1},
		{"of an age", terms{fresh: 60 * s, age: 10 * s}, 5 * s, 45 * s, -1, -1},
		{"stale", terms{fresh: 60 * s, stale: 30 * s}, 0, 60 * s, 30 * s, -1},
		{"kept for errors", terms{fresh: 60 * s, stale: 30 * s, onError: 50 * s}, 0, 60 * s, 30 * s, 20 * s},
		{"kept to be validated", terms{fresh: 60 * s, onError: 50 * s, keep: 90 * s}, 0, 60 * s, -1, 90 * s},
		{"stale when it came", terms{fresh: 60 * s, age: 70 * s, stale: 30 * s}, 0, time.Millisecond, 20 * s, -1},
		{"beyond use when it came", terms{fresh: 60 * s, age: 100 * s, stale: 30 * s, keep: 50 * s}, 0, time.Millisecond, -1, 50 * s},
		{"a mark", terms{fresh: 60 * s, stale: 5 * s, keep: 90 * s, validate: true}, 0, 7 * s, -1, 90 * s},
		{"the longest", terms{fresh: maxLifetime, stale: maxLifetime, onError: maxLifetime, keep: maxLifetime}, 0, maxLifetime, maxLifetime, -1},
	} {
		e := c.terms.lifetimes(route, c.took)
		if e.TTL != c.ttl || e.StaleFor != c.stale || e.KeepFor != c.keeps {
			t.Errorf("%s: got %v, %v, %v, want %v, %v, %v", c.what, e.TTL, e.StaleFor, e.KeepFor, c.ttl, c.stale, c.keeps)
		}
		if total := c.terms.total(); total < 0 || total > maxLifetime {
			t.Errorf("%s: of use for %v", c.what, total)
		}
	}
	want(t, "total", terms{fresh: 60 * s, age: 10 * s, stale: 5 * s, onError: 20 * s, keep: 6 * s}.total(), 70*s)
}

// Whatever lifetimes a response has, the cache takes them.
func TestLongestLifetime(t *testing.T) {
	s := serve(t, answers("page", "Cache-Control: max-age=99999999999, stale-while-revalidate=99999999999, stale-if-error=99999999999"))
	for range 2 {
		want(t, "body", bodyOf(t, s.get("http://a.example/")), "page")
	}
	wantRuns(t, s, 1)
}
