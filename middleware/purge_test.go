package middleware

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// versioned answers with what the database has, for an hour.
type versioned struct {
	version atomic.Int64
	fields  map[string]string // of the response
	during  func()            // what happens while the handler runs, after it has read the database
}

func (d *versioned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := d.version.Load()
	if d.during != nil {
		d.during()
	}
	w.Header().Set("Cache-Control", "max-age=3600")
	for name, value := range d.fields {
		w.Header().Set(name, value)
	}
	fmt.Fprintf(w, "v%d for %s", v, r.Header.Get("Accept-Language"))
}

func TestPurgeRemovesAllVariantsOnEveryInstance(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		d := &versioned{fields: map[string]string{"Vary": "Accept-Language"}}
		here, there := newSite(t, s.Client(t), Route{}, d.ServeHTTP), newSite(t, s.Client(t), Route{}, d.ServeHTTP)
		for _, lang := range []string{"de", "en"} {
			here.wantBody("v0 for "+lang, "/p?q", "Accept-Language: "+lang)
			there.wantBody("v0 for "+lang, "/p?q", "Accept-Language: "+lang)
		}
		here.wantRuns("both variants", 2)
		there.wantRuns("on the other instance", 0)
		d.version.Store(1)
		if err := there.mw.Purge(t.Context(), "http://HOST:80/p?q"); err != nil {
			t.Fatal(err)
		}
		for _, lang := range []string{"de", "en"} {
			here.wantBody("v1 for "+lang, "/p?q", "Accept-Language: "+lang)
			there.wantBody("v1 for "+lang, "/p?q", "Accept-Language: "+lang)
		}
		here.wantRuns("after the purge", 2)
	})
}

// strapi-community/plugin-rest-cache#132, farm.js#977: a fill that began before a purge must not land after it.
func TestAPurgeBeatsARunInFlight(t *testing.T) {
	for name, fields := range map[string]map[string]string{"plain": nil, "variant": {"Vary": "Accept-Language"}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				d := &versioned{fields: fields}
				here, there := newSite(t, s.Client(t), Route{}, d.ServeHTTP), newSite(t, s.Client(t), Route{}, d.ServeHTTP)
				for _, warm := range []bool{false, true} { // once an index is there, the variant's own key is filled
					if warm && fields == nil {
						continue
					}
					if warm {
						_ = here.mw.Purge(t.Context(), "http://host/p")
						d.during = nil
						here.do(http.MethodGet, "/p", "Accept-Language: de")
						here.runs.Store(0)
					}
					was := d.version.Load()
					d.during = sync.OnceFunc(func() {
						d.version.Add(1)
						if err := there.mw.Purge(t.Context(), "http://host/p"); err != nil {
							t.Error(err)
						}
					})
					here.wantBody(fmt.Sprintf("v%d for ", was), "/p")
					here.wantBody(fmt.Sprintf("v%d for ", was+1), "/p")
					there.wantBody(fmt.Sprintf("v%d for ", was+1), "/p")
					here.wantRuns("both", 2)
				}
			})
		})
	}
}

func TestExpireServesStaleWhileOneRunRenews(t *testing.T) {
	for name, fields := range map[string]map[string]string{"plain": nil, "variant": {"Vary": "Accept-Language"}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s redistest.Server) {
				d := &versioned{fields: fields}
				site := newSite(t, s.Client(t), Route{StaleWhileRevalidate: time.Hour}, d.ServeHTTP)
				site.wantBody("v0 for ", "/p")
				d.version.Store(1)
				if err := site.mw.Expire(t.Context(), "http://host/p"); err != nil {
					t.Fatal(err)
				}
				site.wantBody("v0 for ", "/p")
				redistest.Eventually(t, 10*time.Second, "the renewed page", func() bool {
					return site.do(http.MethodGet, "/p").Body.String() == "v1 for "
				})
				site.wantRuns("with the renewal", 2)
			})
		})
	}
}

func TestAPurgeOfNoURLIsAnError(t *testing.T) {
	site := newSite(t, redistest.Fake(t).Client(t), Route{}, nil)
	for _, url := range []string{"", "/p", "host/p", "ftp://host/p", "http:///p", "http://host/%zz", "http://host", "http://host:80"} {
		for name, purge := range map[string]error{"Purge": site.mw.Purge(t.Context(), url), "Expire": site.mw.Expire(t.Context(), url)} {
			if hasPath := url == "http://host" || url == "http://host:80"; (purge == nil) != hasPath { // their path is "/"
				t.Errorf("%s of %q: got %v", name, url, purge)
			}
		}
	}
}

func TestAnUnsafeRequestInvalidates(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		d := &versioned{}
		var answer http.HandlerFunc
		site := newSite(t, s.Client(t), Route{}, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				d.ServeHTTP(w, r)
				return
			}
			answer(w, r)
		})
		status := func(status int, fields ...string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(fields); i += 2 {
					w.Header().Set(fields[i], fields[i+1])
				}
				w.WriteHeader(status)
			}
		}
		const fills = "/a"
		for _, c := range []struct {
			name         string
			method, path string
			answer       http.HandlerFunc
			invalidates  bool
		}{
			{"POST", "POST", "/a", status(200), true},
			{"implicit status", "POST", "/a", func(http.ResponseWriter, *http.Request) {}, true},
			{"body only", "PUT", "/a", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }, true},
			{"redirect", "POST", "/a", status(303), true},
			{"an unknown method", "FROB", "/a", status(204), true},
			{"DELETE", "DELETE", "/a", status(204), true},
			{"failed", "POST", "/a", status(400), false},
			{"error", "POST", "/a", status(500), false},
			{"another path", "POST", "/b", status(200), false},
			{"a safe method", "OPTIONS", "/a", status(200), false},
			{"Location", "POST", "/b", status(201, "Location", "/a"), true},
			{"relative", "POST", "/b", status(201, "Location", "a"), true},
			{"Content-Location", "PUT", "/b", status(200, "Content-Location", "http://host/a"), true},
			{"of another origin", "POST", "/b", status(201, "Location", "http://other/a"), false},
			{"of another scheme", "POST", "/b", status(201, "Location", "https://host/a"), false},
			{"no URL", "POST", "/b", status(201, "Location", "http://[/a"), false},
		} {
			was := d.version.Load()
			site.wantBody(fmt.Sprintf("v%d for ", was), fills)
			d.version.Add(1)
			answer = c.answer
			site.do(c.method, c.path)
			want := was
			if c.invalidates {
				want++
			}
			if got := site.do(http.MethodGet, fills).Body.String(); got != fmt.Sprintf("v%d for ", want) {
				t.Errorf("%s: got %q, want v%d", c.name, got, want)
			}
			_ = site.mw.Purge(t.Context(), "http://host/a")
		}
	})
}

func TestAPurgeOfNoTagIsAnError(t *testing.T) {
	site := newSite(t, redistest.Fake(t).Client(t), tagged, nil)
	var none context.Context
	for name, err := range map[string]error{
		"PurgeTag of nothing": site.mw.PurgeTag(t.Context(), ""), "ExpireTag of nothing": site.mw.ExpireTag(t.Context(), ""),
		"PurgeTag": site.mw.PurgeTag(none, "red"), "ExpireTag": site.mw.ExpireTag(none, "red"),
		"Purge": site.mw.Purge(none, "http://host/"), "Expire": site.mw.Expire(none, "http://host/"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A client that has the response to its write must not get the older page.
func TestInvalidationComesBeforeTheResponse(t *testing.T) {
	d := &versioned{}
	site := newSite(t, redistest.Fake(t).Client(t), Route{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			d.ServeHTTP(w, r)
			return
		}
		d.version.Add(1)
		w.WriteHeader(http.StatusOK)
	})
	site.wantBody("v0 for ", "/p")
	w := &onHeader{ResponseRecorder: httptest.NewRecorder(), f: func() { site.wantBody("v1 for ", "/p") }}
	site.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://host/p", nil))
	if w.f != nil {
		t.Error("no header was sent")
	}
}

// onHeader is a client that acts as soon as it has the header.
type onHeader struct {
	*httptest.ResponseRecorder
	f func()
}

func (w *onHeader) WriteHeader(status int) {
	f := w.f
	w.f = nil
	w.ResponseRecorder.WriteHeader(status)
	if f != nil {
		f()
	}
}
