package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stockade-cache/stockade"
)

// What is scraped is what happened: every query of the database, every line of the log, every read.
func TestMetricsOfARun(t *testing.T) {
	var lines syncBuffer
	registry := prometheus.NewRegistry()
	s := size{instances: 3, callers: 20, load: 20 * time.Millisecond, ttl: time.Hour, redisTimeout: time.Minute} // however busy the machine is
	f, err := openFleet(t.Context(), s, registry, slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	// A cold key, read by all at once, then all again; then a change, and all once more.
	for range 3 {
		for range 2 {
			var callers sync.WaitGroup
			for _, cache := range f.caches {
				for range s.callers {
					callers.Go(func() {
						if err := f.get(t.Context(), cache, 1); err != nil {
							t.Error(err)
						}
					})
				}
			}
			callers.Wait()
		}
		if err := f.caches[0].Invalidate(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.get(t.Context(), f.caches[1], products+1); err == nil {
		t.Error("there is one product more than expected")
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	got := scrape(t, server.URL)

	queries, reads := float64(f.repository.Queries()), float64(f.reads.Load())
	if queries != 4 {
		t.Errorf("%v queries, want one for each time that a product was missing", queries)
	}
	for name, want := range map[string]float64{
		"stockade_loads_total": queries, "stockade_load_seconds_count": queries,
		`stockade_loads_ended_total{outcome="stored"}`: queries - 1, `stockade_loads_ended_total{outcome="absent"}`: 1,
		"stockade_load_errors_total": 0, "stockade_redis_errors_total": 0, "stockade_change_errors_total": 0, "stockade_rejected_commits_total": 0,
		"stockade_loading": 0, "stockade_flights": 0,
		"log": queries,
	} {
		value := got[name]
		if name == "log" {
			value = float64(strings.Count(lines.String(), "msg=load "))
		}
		if value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
	if want := float64(3*2*s.instances*s.callers + 1); reads != want {
		t.Errorf("%v reads, want %v", reads, want)
	}
	// One that met a load which began before it goes round, and counts again.
	missing := got[`stockade_reads_total{result="missing"}`]
	shown := missing + got[`stockade_reads_total{result="fresh"}`]
	if shown < reads || shown > reads+missing || missing < 4 {
		t.Errorf("%v reads are shown, %v of them missing, of %v", shown, missing, reads)
	}
	if waits := got["stockade_waits_total"]; waits != got["stockade_wait_seconds_count"] || waits > 6 {
		t.Errorf("%v waits, and %v have ended: want up to one for each other instance and load", waits, got["stockade_wait_seconds_count"])
	}
}

// run serves the metrics while the fleet works, and ends with its context.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lines syncBuffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, size{listen: "127.0.0.1:0", instances: 2, callers: 3, load: time.Millisecond, ttl: time.Second}, slog.New(slog.NewTextHandler(&lines, nil)))
	}()
	at := regexp.MustCompile(`url=(\S+)`)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if m := at.FindStringSubmatch(lines.String()); m != nil && scrape(t, m[1])["stockade_loads_total"] > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no load is shown; the log says:\n%s", lines.String())
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A load that Close has ended is no failure of the database.
func TestLogOfLoads(t *testing.T) {
	for err, level := range map[error]string{
		nil: "INFO", stockade.ErrNotFound: "INFO", stockade.ErrClosed: "INFO", &stockade.LoadError{Err: errors.New("no such table")}: "ERROR",
	} {
		var lines bytes.Buffer
		logging(slog.New(slog.NewTextHandler(&lines, nil))).Load(stockade.LoadEvent{Key: "1", Err: err})
		if !strings.Contains(lines.String(), "level="+level) {
			t.Errorf("%v is logged as %s", err, lines.String())
		}
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []struct{ args, want string }{
		{"-instances 0", "-instances is 0"}, {"-callers -1", "-callers is -1"}, {"-load 0s", "-load is 0s"}, {"more", `"more"`},
	} {
		if _, err := parse(strings.Fields(bad.args), io.Discard); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("parse(%s) = %v, want %s", bad.args, err, bad.want)
		}
	}
}

// scrape returns the sums over all caches.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", response.Status, err)
	}
	sums := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)\{cache="[^"]+",?([^}]*)\} (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		name := m[1]
		if m[2] != "" {
			name = fmt.Sprintf("%s{%s}", m[1], m[2])
		}
		sums[name] += value
	}
	return sums
}

// syncBuffer is a buffer that is written and read at once.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
