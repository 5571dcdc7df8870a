package middleware

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The figures of docs/figures.md: ratios against a baseline of the same run, in blocks that take turns.

// clients are connections to a server that are kept. They do as little as they can: they share the machine with it.
type clients []*connection

type connection struct {
	net.Conn
	*bufio.Reader
}

// connect serves a handler to n clients.
func connect(b testing.TB, n int, handler http.Handler) clients {
	srv := httptest.NewServer(handler)
	b.Cleanup(srv.Close)
	cs := make(clients, n)
	for i := range cs {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		cs[i] = &connection{c, bufio.NewReader(c)}
	}
	cs.burst(b, "/warm")
	return cs
}

// ask sends a GET and reads what comes.
func (c *connection) ask(path string) error {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: host\r\n\r\n"); err != nil {
		return err
	}
	length := 0
	for {
		line, err := c.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			_, err = c.Discard(length)
			return err
		}
		if value, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return err
			}
		}
	}
}

// burst has all clients ask at once and returns how long each took, sorted.
func (cs clients) burst(b testing.TB, path string) []time.Duration {
	took := make([]time.Duration, len(cs))
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, c := range cs {
		wg.Go(func() {
			<-start
			begun := time.Now()
			if err := c.ask(path); err != nil {
				b.Error(err)
			}
			took[i] = time.Since(begun)
		})
	}
	close(start)
	wg.Wait()
	slices.Sort(took)
	return took
}

// series has each client ask n times in a row.
func (cs clients) series(b testing.TB, path string, n int) time.Duration {
	var wg sync.WaitGroup
	begun := time.Now()
	for _, c := range cs {
		wg.Go(func() {
			for range n {
				if err := c.ask(path); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// body is what the handlers answer.
var body = strings.Repeat("x", 1024)

// newBench is a middleware on a real server before a handler that takes a while.
func newBench(b testing.TB, n int, takes time.Duration, control string) (cs clients, runs *atomic.Int64) {
	rdb := redistest.Real(b).Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	mw, err := New(rdb, Options{Prefix: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = mw.Close() })
	runs = new(atomic.Int64)
	cs = connect(b, n, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		time.Sleep(takes)
		answer(200, body, "Cache-Control", control, "Content-Length", "1024")(w, r)
	})))
	runs.Store(0)
	return cs, runs
}

// shares are quantiles of bursts, in units of what the handler takes.
type shares struct{ p50, p99 []float64 }

func (s *shares) add(took []time.Duration, takes time.Duration) {
	s.p50 = append(s.p50, float64(quantile(took, 0.50))/float64(takes))
	s.p99 = append(s.p99, float64(quantile(took, 0.99))/float64(takes))
}

func (s *shares) report(b *testing.B, name string) {
	b.ReportMetric(median(s.p50), name+"-p50")
	b.ReportMetric(median(s.p99), name+"-p99")
}

// BenchmarkColdKey is one URL that nobody has asked for, and many clients at once: each operation is one such burst. Beside it
// the same clients ask a handler that just takes that long, which says what the machine needs for so many, and one that
// shares its run by a sync.Once and stores nothing, which is the least that sharing takes.
func BenchmarkColdKey(b *testing.B) {
	for _, c := range []struct {
		takes time.Duration
		n     int
	}{{200 * time.Millisecond, 500}, {20 * time.Millisecond, 200}} {
		b.Run(fmt.Sprintf("handler=%v/clients=%d", c.takes, c.n), func(b *testing.B) {
			ours, runs := newBench(b, c.n, c.takes, "max-age=3600")
			run := func() string { time.Sleep(c.takes); return body }
			bare := connect(b, c.n, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, run()) }))
			var pages sync.Map
			once := connect(b, c.n, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page, _ := pages.LoadOrStore(r.URL.Path, sync.OnceValue(run))
				_, _ = io.WriteString(w, page.(func() string)())
			}))
			var bareShares, onceShares, ourShares shares
			n := 0
			for b.Loop() {
				n++
				path := fmt.Sprintf("/%d", n)
				bareShares.add(bare.burst(b, path), c.takes)
				onceShares.add(once.burst(b, path), c.takes)
				ourShares.add(ours.burst(b, path), c.takes)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(runs.Load())/float64(n), "runs")
			bareShares.report(b, "bare")
			onceShares.report(b, "once")
			ourShares.report(b, "ours")
		})
	}
}

// BenchmarkUncacheable is a URL whose responses are never shared: its first burst, and a later one.
func BenchmarkUncacheable(b *testing.B) {
	const takes = 200 * time.Millisecond
	cs, runs := newBench(b, 200, takes, "private")
	var first, later shares
	n := 0
	for b.Loop() {
		n++
		path := fmt.Sprintf("/%d", n)
		first.add(cs.burst(b, path), takes)
		later.add(cs.burst(b, path), takes)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(runs.Load())/float64(2*n), "runs")
	first.report(b, "first")
	later.report(b, "later")
}

// BenchmarkHit is a page of 1 KiB in Redis, against a handler that does one GET of as much.
func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			rdb := redistest.Real(b).Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			mw, err := New(rdb, Options{Prefix: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = mw.Close() })
			rdb.Set(context.Background(), "bare", body, time.Hour)
			bare := connect(b, n, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				value, err := rdb.Get(r.Context(), "bare").Bytes()
				if err != nil {
					b.Error(err)
				}
				w.Header().Set("Content-Type", "text/plain")
				_, _ = w.Write(value)
			}))
			ours := connect(b, n, mw.Handler(answer(200, body, "Cache-Control", "max-age=3600", "Content-Type", "text/plain", "Content-Length", "1024")))
			const each = 500
			var ratios, times []float64
			for b.Loop() {
				base := bare.series(b, "/warm", each)
				mine := ours.series(b, "/warm", each)
				ratios = append(ratios, float64(mine)/float64(base))
				times = append(times, float64(mine)/float64(n*each)/1e3)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ratios), "x-bare-GET")
			b.ReportMetric(median(times), "µs/hit")
		})
	}
}

// BenchmarkStale is a page that is stale and being renewed by a slow run, against a fresh one in Redis.
func BenchmarkStale(b *testing.B) {
	const takes = 500 * time.Millisecond
	cs, runs := newBench(b, 16, takes, "max-age=1, stale-while-revalidate=3600")
	p99 := func(path string) float64 {
		var all []time.Duration
		for begun := time.Now(); time.Since(begun) < takes/2; {
			all = append(all, cs.burst(b, path)...)
		}
		slices.Sort(all)
		return float64(quantile(all, 0.99))
	}
	var ratios []float64
	var renewed int64
	n := 0
	for b.Loop() {
		n++
		path := fmt.Sprintf("/%d", n)
		cs.burst(b, path)
		hit := p99(path)
		time.Sleep(1100 * time.Millisecond)
		before := runs.Load()
		ratios = append(ratios, p99(path)/hit)
		renewed += runs.Load() - before
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "x-p99-of-a-hit")
	b.ReportMetric(float64(renewed)/float64(n), "runs")
}
