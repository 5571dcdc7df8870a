package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/middleware"
)

// client returns a client of a Redis that lives in this process.
func client() (*redis.Client, func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return rdb, func() { _ = rdb.Close(); server.Close() }
}

// ask sends a request as a client does that keeps nothing itself, and prints what it gets.
func ask(h http.Handler, method, url string, fields ...string) {
	r := httptest.NewRequest(method, url, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	status, _, _ := strings.Cut(w.Header().Get("Cache-Status"), "; ttl=") // what is left depends on how fast this ran
	fmt.Printf("%s (%s)\n", w.Body, status)
}

// The handler says how long its responses are fresh.
func Example() {
	rdb, stop := client()
	defer stop()
	mw, err := middleware.New(rdb, middleware.Options{Prefix: "pages"})
	if err != nil {
		panic(err)
	}
	defer mw.Close()

	runs := 0
	mux := http.NewServeMux()
	mux.Handle("GET /report", mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		w.Header().Set("Cache-Control", "max-age=60, stale-while-revalidate=600")
		fmt.Fprintf(w, "run %d", runs)
	})))

	ask(mux, "GET", "http://shop.example/report")
	ask(mux, "GET", "http://shop.example/report")
	// Output:
	// run 1 (stockade; fwd=uri-miss; fwd-status=200; stored)
	// run 1 (stockade; hit)
}

// Routes differ in what they do not say themselves, and share the rest.
func ExampleMiddleware_With() {
	rdb, stop := client()
	defer stop()
	mw, err := middleware.New(rdb, middleware.Options{Prefix: "pages"})
	if err != nil {
		panic(err)
	}
	defer mw.Close()
	catalogue, err := mw.With(middleware.Route{TTL: time.Hour, StaleIfError: 24 * time.Hour})
	if err != nil {
		panic(err)
	}

	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page") })
	mux := http.NewServeMux()
	mux.Handle("GET /catalogue", catalogue.Handler(page))
	mux.Handle("GET /basket", mw.Handler(page)) // says nothing of its freshness: it is not stored

	ask(mux, "GET", "http://shop.example/catalogue")
	ask(mux, "GET", "http://shop.example/basket")
	// Output:
	// page (stockade; fwd=uri-miss; fwd-status=200; stored)
	// page (stockade; fwd=uri-miss; fwd-status=200; detail=no-freshness)
}

// One cookie selects the page. The handler does not see the others.
func ExampleRoute_cookies() {
	rdb, stop := client()
	defer stop()
	mw, err := middleware.New(rdb, middleware.Options{
		Prefix: "pages",
		Route:  middleware.Route{TTL: time.Minute, Cookies: []string{"currency"}},
	})
	if err != nil {
		panic(err)
	}
	defer mw.Close()
	prices := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "for %q", r.Header.Get("Cookie"))
	}))

	ask(prices, "GET", "http://shop.example/prices", "Cookie", "currency=EUR; session=1")
	ask(prices, "GET", "http://shop.example/prices", "Cookie", "session=2; currency=EUR")
	ask(prices, "GET", "http://shop.example/prices", "Cookie", "currency=USD")
	// Output:
	// for "currency=EUR" (stockade; fwd=uri-miss; fwd-status=200; stored)
	// for "currency=EUR" (stockade; hit)
	// for "currency=USD" (stockade; fwd=vary-miss; fwd-status=200; stored)
}

// tenantKey is where an outer middleware leaves the tenant that it has authenticated.
type tenantKey struct{}

// Key says what else a response depends on. It must say all of it.
func ExampleRoute_key() {
	rdb, stop := client()
	defer stop()
	mw, err := middleware.New(rdb, middleware.Options{
		Prefix: "pages",
		Route: middleware.Route{
			TTL: time.Minute,
			Key: func(r *http.Request) (string, bool) {
				tenant, ok := r.Context().Value(tenantKey{}).(string)
				return tenant, ok // without a tenant nothing is shared
			},
		},
	})
	if err != nil {
		panic(err)
	}
	defer mw.Close()
	report := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "report of %v", r.Context().Value(tenantKey{}))
	}))
	authenticated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if tenant := r.Header.Get("X-Tenant"); tenant != "" { // in your service: what the session says
			ctx = context.WithValue(ctx, tenantKey{}, tenant)
		}
		report.ServeHTTP(w, r.WithContext(ctx))
	})

	ask(authenticated, "GET", "http://shop.example/report", "X-Tenant", "acme")
	ask(authenticated, "GET", "http://shop.example/report", "X-Tenant", "acme")
	ask(authenticated, "GET", "http://shop.example/report", "X-Tenant", "umbrella")
	ask(authenticated, "GET", "http://shop.example/report")
	// Output:
	// report of acme (stockade; fwd=uri-miss; fwd-status=200; stored)
	// report of acme (stockade; hit)
	// report of umbrella (stockade; fwd=vary-miss; fwd-status=200; stored)
	// report of <nil> (stockade; fwd=bypass; fwd-status=200; detail=key)
}

// Write to the source first, then purge. When Purge fails, old pages may be served until their lifetime ends: try again.
func ExampleMiddleware_Purge() {
	rdb, stop := client()
	defer stop()
	mw, err := middleware.New(rdb, middleware.Options{Prefix: "pages", Route: middleware.Route{TTL: time.Hour}})
	if err != nil {
		panic(err)
	}
	defer mw.Close()
	price := 10
	product := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%d EUR", price) }))

	ask(product, "GET", "http://shop.example/products/7")
	price = 12
	if err := mw.Purge(context.Background(), "http://shop.example/products/7"); err != nil {
		fmt.Println("try again:", err)
	}
	ask(product, "GET", "http://shop.example/products/7")
	// Output:
	// 10 EUR (stockade; fwd=uri-miss; fwd-status=200; stored)
	// 12 EUR (stockade; fwd=uri-miss; fwd-status=200; stored)
}

// All pages that show a product carry its tag, and go together.
func ExampleMiddleware_PurgeTag() {
	rdb, stop := client()
	defer stop()
	mw, err := middleware.New(rdb, middleware.Options{Prefix: "pages", Route: middleware.Route{TTL: time.Hour, Tags: true}})
	if err != nil {
		panic(err)
	}
	defer mw.Close()
	price := 10
	page := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Surrogate-Key", "product-7 product-8")
		fmt.Fprintf(w, "%s: %d EUR", r.URL.Path, price)
	}))

	ask(page, "GET", "http://shop.example/products/7")
	ask(page, "GET", "http://shop.example/offers")
	price = 12
	if err := mw.PurgeTag(context.Background(), "product-7"); err != nil {
		fmt.Println("try again:", err)
	}
	ask(page, "GET", "http://shop.example/products/7")
	ask(page, "GET", "http://shop.example/offers")
	// Output:
	// /products/7: 10 EUR (stockade; fwd=uri-miss; fwd-status=200; stored)
	// /offers: 10 EUR (stockade; fwd=uri-miss; fwd-status=200; stored)
	// /products/7: 12 EUR (stockade; fwd=stale; fwd-status=200; stored)
	// /offers: 12 EUR (stockade; fwd=stale; fwd-status=200; stored)
}
