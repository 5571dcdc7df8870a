package middleware

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The figures of docs/figures.md: ratios against a baseline of the same run, in blocks that take turns.

// server serves a handler, to clients that keep their connections.
func server(b testing.TB, handler http.Handler) (url string, client *http.Client) {
	srv := httptest.NewServer(handler)
	b.Cleanup(srv.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, MaxConnsPerHost: 1000}
	b.Cleanup(transport.CloseIdleConnections)
	return srv.URL, &http.Client{Transport: transport}
}

// volley asks n times at once and returns how long each took, sorted.
func volley(b testing.TB, client *http.Client, n int, url func(i int) string) []time.Duration {
	took := make([]time.Duration, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			begun := time.Now()
			resp, err := client.Get(url(i))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			took[i] = time.Since(begun)
		})
	}
	close(start)
	wg.Wait()
	slices.Sort(took)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// newBench is a middleware on a real server around a handler that takes a while.
func newBench(b testing.TB, route Route, takes time.Duration, fields map[string]string) (url string, client *http.Client, runs *atomic.Int64) {
	rdb := redistest.Real(b).Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	mw, err := New(rdb, Options{Prefix: "bench", Route: route})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = mw.Close() })
	runs = new(atomic.Int64)
	url, client = server(b, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		time.Sleep(takes)
		for name, value := range fields {
			w.Header().Set(name, value)
		}
		fmt.Fprint(w, strings.Repeat("x", 1024))
	})))
	return url, client, runs
}

// BenchmarkColdKey is one URL that nobody has asked for, and many clients at once: each operation is one such burst.
func BenchmarkColdKey(b *testing.B) {
	for _, c := range []struct {
		takes   time.Duration
		clients int
	}{{200 * time.Millisecond, 500}, {20 * time.Millisecond, 200}} {
		b.Run(fmt.Sprintf("handler=%v/clients=%d", c.takes, c.clients), func(b *testing.B) {
			url, client, runs := newBench(b, Route{}, c.takes, map[string]string{"Cache-Control": "max-age=3600"})
			volley(b, client, c.clients, func(int) string { return url + "/warm" }) // the connections
			runs.Store(0)
			var p50, p99, over []float64
			n := 0
			for b.Loop() {
				n++
				took := volley(b, client, c.clients, func(int) string { return fmt.Sprintf("%s/%d", url, n) })
				p50 = append(p50, float64(quantile(took, 0.50))/float64(c.takes))
				p99 = append(p99, float64(quantile(took, 0.99))/float64(c.takes))
				over = append(over, float64(quantile(took, 0.99)-c.takes)/1e6)
			}
			b.ReportMetric(float64(runs.Load())/float64(n), "runs/burst")
			b.ReportMetric(median(p50), "p50/handler")
			b.ReportMetric(median(p99), "p99/handler")
			b.ReportMetric(median(over), "p99-handler-ms")
		})
	}
}

// BenchmarkUncacheable is a URL whose responses are never shared: its first burst, and a later one.
func BenchmarkUncacheable(b *testing.B) {
	const takes, clients = 200 * time.Millisecond, 200
	url, client, runs := newBench(b, Route{}, takes, map[string]string{"Cache-Control": "private"})
	volley(b, client, clients, func(int) string { return url + "/warm" })
	runs.Store(0)
	var first, later []float64
	n := 0
	for b.Loop() {
		n++
		at := func(int) string { return fmt.Sprintf("%s/%d", url, n) }
		first = append(first, float64(quantile(volley(b, client, clients, at), 0.99))/float64(takes))
		later = append(later, float64(quantile(volley(b, client, clients, at), 0.99))/float64(takes))
	}
	b.ReportMetric(float64(runs.Load())/float64(2*n), "runs/burst")
	b.ReportMetric(median(first), "first-p99/handler")
	b.ReportMetric(median(later), "later-p99/handler")
}

// BenchmarkHit is a page of 1 KiB in Redis, against a handler that does one GET of as much.
func BenchmarkHit(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			rdb := redistest.Real(b).Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			mw, err := New(rdb, Options{Prefix: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = mw.Close() })
			body := strings.Repeat("x", 1024)
			rdb.Set(context.Background(), "bare", body, time.Hour)
			bare, bareClient := server(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				value, err := rdb.Get(r.Context(), "bare").Bytes()
				if err != nil {
					b.Error(err)
				}
				w.Header().Set("Content-Type", "text/plain")
				_, _ = w.Write(value)
			}))
			ours, ourClient := server(b, mw.Handler(answer(200, body, "Cache-Control", "max-age=3600", "Content-Type", "text/plain")))
			const each = 500
			measure := func(client *http.Client, url string) time.Duration {
				var wg sync.WaitGroup
				begun := time.Now()
				for range callers {
					wg.Go(func() {
						for range each {
							resp, err := client.Get(url)
							if err != nil {
								b.Error(err)
								return
							}
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					})
				}
				wg.Wait()
				return time.Since(begun)
			}
			measure(bareClient, bare)
			measure(ourClient, ours)
			var ratios, times []float64
			for b.Loop() {
				base := measure(bareClient, bare)
				mine := measure(ourClient, ours)
				ratios = append(ratios, float64(mine)/float64(base))
				times = append(times, float64(mine)/float64(callers*each)/1e3)
			}
			b.ReportMetric(median(ratios), "x-bare-GET")
			b.ReportMetric(median(times), "µs/hit")
		})
	}
}

// BenchmarkStale is a page that is stale and being renewed by a slow run, against a fresh one in Redis.
func BenchmarkStale(b *testing.B) {
	const clients, takes = 16, 500 * time.Millisecond
	url, client, runs := newBench(b, Route{}, takes, map[string]string{"Cache-Control": "max-age=1, stale-while-revalidate=3600"})
	fresh := func(int) string { return url + "/fresh" }
	stale := func(int) string { return url + "/stale" }
	p99 := func(at func(int) string, lasts time.Duration) time.Duration {
		var all []time.Duration
		for begun := time.Now(); time.Since(begun) < lasts; {
			all = append(all, volley(b, client, clients, at)...)
		}
		slices.Sort(all)
		return quantile(all, 0.99)
	}
	volley(b, client, clients, stale)
	var ratios []float64
	var renewed int64
	n := 0
	for b.Loop() {
		n++
		volley(b, client, 1, fresh)
		hit := p99(fresh, takes/2)
		volley(b, client, 1, stale) // so that it is there
		time.Sleep(1100 * time.Millisecond)
		before := runs.Load()
		ratios = append(ratios, float64(p99(stale, takes/2))/float64(hit))
		renewed += runs.Load() - before
		time.Sleep(takes) // until it is renewed
	}
	b.ReportMetric(median(ratios), "x-p99-of-a-hit")
	b.ReportMetric(float64(renewed)/float64(n), "runs/op")
}
