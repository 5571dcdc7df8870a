package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/examples/internal/display"
	"github.com/stockade-cache/stockade/examples/internal/store"
)

func TestRun(t *testing.T) {
	const clients = 20
	var out strings.Builder
	results, err := run(t.Context(), settings{clients: clients, report: 30 * time.Millisecond, timeout: 20 * time.Second}, &out, false)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if len(results) != 4 {
		t.Fatalf("got %d results, want 4", len(results))
	}
	coldBare, cold, hotBare, hot := results[0], results[1], results[2], results[3]
	if coldBare.requests != clients || coldBare.runs != clients {
		t.Errorf("a cold page without the middleware: %d requests, %d runs, want %d each", coldBare.requests, coldBare.runs, clients)
	}
	if cold.requests != clients || cold.runs != 1 {
		t.Errorf("a cold page: %d requests, %d runs, want %d and 1", cold.requests, cold.runs, clients)
	}
	if hotBare.runs != int64(hotBare.requests) {
		t.Errorf("an expiring page without the middleware: %d requests, %d runs", hotBare.requests, hotBare.runs)
	}
	// It is renewed in the last half of its max-age at the earliest.
	if hot.runs < 1 || hot.runs > 9 || hot.requests < 3*clients {
		t.Errorf("an expiring page: %d requests, %d runs, want at most 9 runs", hot.requests, hot.runs)
	}
	for _, r := range results {
		if r.p50 <= 0 || r.p99 < r.p50 || r.unanswered != 0 {
			t.Errorf("%s, %s: p50 %v, p99 %v, %d unanswered", r.scenario, wayName(r.shared), r.p50, r.p99, r.unanswered)
		}
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), r.scenario+" "+wayName(r.shared)) {
			t.Errorf("the table has no row for %q %q:\n%s", r.scenario, wayName(r.shared), out.String())
		}
	}
}

// Clients that are not answered in time are counted, and do not end the measurement.
func TestUnanswered(t *testing.T) {
	sales := small(t)
	server := miniredis.RunT(t)
	s := settings{redis: &redis.Options{Addr: server.Addr()}, clients: 3, timeout: time.Nanosecond}
	r, err := measure(t.Context(), s, coldPage(), false, sales, &display.Progress{W: io.Discard})
	if err != nil || r.unanswered != 3 || r.requests != 3 {
		t.Errorf("measure = %+v, %v, want 3 unanswered", r, err)
	}
	var table strings.Builder
	if err := writeTable(&table, []result{{scenario: "s", p50: time.Second, p99: time.Minute}}, time.Minute); err != nil || !strings.Contains(table.String(), "> 1m0s") {
		t.Errorf("the table does not say that clients gave up: %v\n%s", err, &table)
	}
}

func TestCheck(t *testing.T) {
	cold := coldPage().name
	for want, r := range map[string]result{
		"":                     {scenario: cold, shared: true, runs: 1},
		"ran 2 times":          {scenario: cold, shared: true, runs: 2},
		"1 of 5 requests had":  {scenario: "another", shared: true, requests: 5, unanswered: 1},
		" ":                    {scenario: cold, runs: 300, unanswered: 299}, // nothing was promised
		"ran 0 times, want on": {scenario: cold, shared: true},
	} {
		err := check([]result{r})
		if wanted := strings.TrimSpace(want); (err == nil) != (wanted == "") || err != nil && !strings.Contains(err.Error(), wanted) {
			t.Errorf("check(%+v) = %v, want %q", r, err, wanted)
		}
	}
}

func TestCreateSales(t *testing.T) {
	sales := small(t)
	const wanted = 20 * time.Millisecond
	if sales.took < wanted*9/10 || sales.rows < 1000 || sales.runs.Load() != 0 {
		t.Errorf("the report took %v over %d rows and counts %d runs, want about %v", sales.took, sales.rows, sales.runs.Load(), wanted)
	}
	lines, err := sales.report(t.Context())
	if err != nil || len(lines) != 12 {
		t.Fatalf("report = %v, %v, want 12 regions", lines, err)
	}
	total := int64(0)
	for _, l := range lines {
		total += l.Sales
	}
	if total != int64(sales.rows) {
		t.Errorf("the report is over %d sales, want %d", total, sales.rows)
	}
}

// What a browser sees: a page that is shared by both instances, one that is not, and a purge that all hear of.
func TestSite(t *testing.T) {
	server := miniredis.RunT(t)
	sales := small(t)
	site, all, err := newSite(settings{redis: &redis.Options{Addr: server.Addr()}}, sales)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, in := range all {
			in.close()
		}
	}()
	ask := func(method, path, body, status string) {
		t.Helper()
		w := httptest.NewRecorder()
		site.ServeHTTP(w, httptest.NewRequest(method, "http://localhost:8080"+path, nil))
		got := w.Header().Get("Cache-Status")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), body) || !regexp.MustCompile("^"+status+"$").MatchString(got) {
			t.Errorf("%s %s: got %d with Cache-Status %q, want %q\n%.200s", method, path, w.Code, got, status, w.Body)
		}
	}
	ask("GET", "/", "<title>", "")
	ask("GET", "/report", "computed at", "stockade; fwd=uri-miss; fwd-status=200; stored")
	for range 2 * instances {
		ask("GET", "/report", "region", `stockade; hit; ttl=\d+`)
		ask("GET", "/private", "for you alone", "stockade; fwd=uri-miss; fwd-status=200; detail=private")
	}
	ask("POST", "/purge", "", "")
	ask("GET", "/report", "computed at", "stockade; fwd=uri-miss; fwd-status=200; stored")
	if runs := sales.runs.Load(); runs != 2 {
		t.Errorf("the report was made %d times, want 2", runs)
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := miniredis.RunT(t)
	sales, reader := small(t), make(chan error, 1)
	read, written := io.Pipe()
	go func() {
		reader <- serve(ctx, settings{redis: &redis.Options{Addr: server.Addr()}, listen: "127.0.0.1:0"}, sales, written)
	}()
	line := make([]byte, 100)
	n, err := read.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "open "))
	if err := get(t.Context(), http.DefaultClient, url+"/report", ""); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-reader; err != nil {
		t.Errorf("serve = %v when it was interrupted, want nil", err)
	}
}

func TestRunEndsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := run(ctx, settings{clients: 10, report: 5 * time.Second, timeout: time.Minute}, io.Discard, true)
	if err == nil || ctx.Err() == nil {
		t.Errorf("run = %v, want an error", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("run ended %v after it began, want soon after 500ms", took)
	}
}

func TestRunWithoutRedis(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	_, err = run(t.Context(), settings{redis: &redis.Options{Addr: nobody.Addr().String(), DialerRetries: 1}, clients: 1, report: time.Millisecond}, io.Discard, false)
	if want := "no Redis answers at " + nobody.Addr().String(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("run = %v, want %s", err, want)
	}
}

func TestParse(t *testing.T) {
	got, err := parse(strings.Fields("-redis redis://localhost:6380/2 -clients 3 -report 5ms -timeout 6s -listen :1"), io.Discard)
	if err != nil || got.clients != 3 || got.report != 5*time.Millisecond || got.timeout != 6*time.Second || got.listen != ":1" || got.redis.Addr != "localhost:6380" || got.redis.DB != 2 {
		t.Errorf("parse = %+v, %v", got, err)
	}
	for _, bad := range []struct{ args, want string }{
		{"-clients 0", "-clients is 0"},
		{"-clients x", `invalid value "x" for flag -clients`},
		{"-report 0s", "-report is 0s"},
		{"-report 11s", "-report is 11s"},
		{"-report 2s -timeout 1s", "-timeout is 1s"},
		{"-redis localhost", `-redis is "localhost"`},
		{"-colour", "-colour"},
		{"more", `"more"`},
	} {
		if _, err := parse(strings.Fields(bad.args), io.Discard); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("parse(%s) = %v, want %s", bad.args, err, bad.want)
		}
	}
}

// small is a table over which a report takes little.
func small(t *testing.T) *sales {
	t.Helper()
	db, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	sales, err := createSales(t.Context(), db, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return sales
}
