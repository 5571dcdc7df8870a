package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRun(t *testing.T) {
	const callers = 3 * 20
	var out strings.Builder
	results, err := run(t.Context(), size{instances: 3, callers: 20, load: 100 * time.Millisecond}, &out, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 4 {
		t.Fatalf("got %d results, want 4", len(results))
	}
	coldPlain, cold, hotPlain, hot := results[0], results[1], results[2], results[3]
	if coldPlain.reads != callers || cold.reads != callers {
		t.Errorf("cold key: %d and %d reads, want %d each", coldPlain.reads, cold.reads, callers)
	}
	// The callers that a busy machine lets start only after the first has stored need no query.
	if coldPlain.queries < callers/2 || coldPlain.queries > callers {
		t.Errorf("cold key without stockade: %d queries, want most of %d", coldPlain.queries, callers)
	}
	if cold.queries != 1 {
		t.Errorf("cold key with stockade: %d queries, want 1", cold.queries)
	}
	// A TTL is at least 0.9 s, and a refresh begins in its last half at the earliest: in 4 s at most every 450 ms.
	if hot.queries < 1 || hot.queries > 9 {
		t.Errorf("expiring key with stockade: %d queries, want at most 9", hot.queries)
	}
	if hotPlain.queries <= hot.queries {
		t.Errorf("expiring key: %d queries without stockade, %d with", hotPlain.queries, hot.queries)
	}
	for _, r := range results {
		if r.p50 <= 0 || r.p99 < r.p50 || r.commands <= 0 {
			t.Errorf("%s, %s: p50 %v, p99 %v, %d commands", r.scenario, r.way, r.p50, r.p99, r.commands)
		}
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), r.scenario+" "+r.way) {
			t.Errorf("the table has no row for %q %q:\n%s", r.scenario, r.way, out.String())
		}
	}
}

func TestRunEndsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := run(ctx, size{instances: 2, callers: 10, load: 5 * time.Second}, io.Discard, true)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run = %v, want the error of its context", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("run ended %v after it began, want soon after 500ms", took)
	}
}

func TestRunWithoutRedis(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	_, err = run(t.Context(), size{redis: &redis.Options{Addr: nobody.Addr().String(), DialerRetries: 1}, instances: 1, callers: 1, load: time.Millisecond}, io.Discard, false)
	if want := "no Redis answers at " + nobody.Addr().String(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("run = %v, want %s", err, want)
	}
}

func TestParse(t *testing.T) {
	got, err := parse([]string{"-redis", "redis://localhost:6380/2", "-instances", "2", "-callers", "3", "-load", "5ms"}, io.Discard)
	if err != nil || got.instances != 2 || got.callers != 3 || got.load != 5*time.Millisecond || got.redis.Addr != "localhost:6380" || got.redis.DB != 2 {
		t.Errorf("parse = %+v, %v", got, err)
	}
	for _, bad := range []struct{ args, want string }{
		{"-instances 0", "-instances is 0"},
		{"-instances x", `invalid value "x" for flag -instances`},
		{"-callers -1", "-callers is -1"},
		{"-load 0s", "-load is 0s"},
		{"-load 11s", "-load is 11s"},
		{"-redis localhost", `-redis is "localhost"`},
		{"-colour", "-colour"},
		{"more", `"more"`},
	} {
		if _, err := parse(strings.Fields(bad.args), io.Discard); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("parse(%s) = %v, want %s", bad.args, err, bad.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var sorted []time.Duration
	for i := range 100 {
		sorted = append(sorted, time.Duration(i+1))
	}
	for part, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.995: 100, 1: 100} {
		if got := quantile(sorted, part); got != want {
			t.Errorf("quantile(%v) = %v, want %v", part, got, want)
		}
	}
}
