package conformance

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/middleware"
)

// A profile is a route that is measured.
type profile struct {
	name  string
	route middleware.Route
}

var profiles = []profile{
	{"default", middleware.Route{StaleIfError: time.Minute, Authorization: true}},
	{"cookies", middleware.Route{StaleIfError: time.Minute, Authorization: true, SetCookie: true, Cookies: []string{}}},
}

func TestConformance(t *testing.T) {
	needSuite(t)
	ed := readEdition(t)
	list := readExceptions(t)
	for _, problem := range list.problems(ed) {
		t.Error(problem)
	}
	origin := startOrigin(t)
	rdb := redistest.Real(t).Client(t)
	var measured []measurement
	for _, p := range profiles {
		t.Run(p.name, func(t *testing.T) {
			got := runSuite(t, serve(t, wrap(t, rdb, p, proxyTo(origin))))
			measured = append(measured, measurement{Name: p.name, Results: got})
			for _, c := range ed.judged() {
				t.Run(c.ID, func(t *testing.T) {
					_, listed := list.reason(p.name, c.ID)
					if complaint := judge(ed.failure(c.ID, got), listed); complaint != "" {
						t.Errorf("%s: %s", c.Kind, complaint)
					}
				})
			}
		})
	}
	if len(measured) < len(profiles) {
		return // the flag -run has chosen among them
	}
	nothing := measurement{Name: "nothing: the proxy alone", Results: runSuite(t, serve(t, proxyTo(origin)))}
	compareReport(t, report(ed, list, measured, nothing))
}

// quiet takes what Go logs about an origin that hangs up: that is a case of the suite.
var quiet = log.New(io.Discard, "", 0)

// proxyTo leads to the origin. Everything goes this way, also how the suite's two sides talk: the PUT of a case's
// configuration, and a GET of what the origin saw, which has neither freshness nor a validator.
func proxyTo(origin *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(origin)
			r.Out.Host = r.In.Host
		},
		// A connection that is kept may be found closed, and then the transport repeats the request: the suite would see it
		// twice. And it is the client who says which encodings it accepts.
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		ErrorLog:  quiet,
	}
}

// wrap puts the middleware of a profile before a handler.
func wrap(t *testing.T, rdb redis.UniversalClient, p profile, next http.Handler) http.Handler {
	t.Helper()
	mw, err := middleware.New(rdb, middleware.Options{Prefix: "conformance-" + p.name, Route: p.route})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mw.Close(); err != nil {
			t.Errorf("close the middleware: %v", err)
		}
	})
	return mw.Handler(next)
}

// serve returns the base URL of a server that ends with the test.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}
