package middleware

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
)

// Each wrong option is refused by an error that names the field and the value.
func TestBadOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	const tooLong = "2562047h"
	for _, c := range []struct {
		opts         Options
		field, value string
	}{
		{Options{}, "Prefix", `""`},
		{Options{Prefix: "a{b"}, "Prefix", "a{b"},
		{Options{Prefix: "p", Scheme: "ftp"}, "Scheme", "ftp"},
		{Options{Prefix: "p", Scheme: "HTTP"}, "Scheme", "HTTP"},
		{Options{Prefix: "p", Name: "my cache"}, "Name", "my cache"},
		{Options{Prefix: "p", Name: `"c"`}, "Name", `"c"`},
		{Options{Prefix: "p", Name: "a;b"}, "Name", "a;b"},
		{Options{Prefix: "p", Name: "1st"}, "Name", "1st"}, // RFC 9651 3.3.4
		{Options{Prefix: "p", Name: "-c"}, "Name", "-c"},
		{Options{Prefix: "p", RunTimeout: -1}, "RunTimeout", "-1ns"},
		{Options{Prefix: "p", RunTimeout: 999 * time.Microsecond}, "RunTimeout", "999µs"},
		{Options{Prefix: "p", RunTimeout: math.MaxInt64}, "RunTimeout", tooLong},
		{Options{Prefix: "p", MaxRuns: -1}, "MaxRuns", "-1"},
		{Options{Prefix: "p", RedisTimeout: -1}, "RedisTimeout", "-1ns"},
		{Options{Prefix: "p", RedisTimeout: 1}, "RedisTimeout", "1ns"},
		{Options{Prefix: "p", RedisTimeout: math.MaxInt64}, "RedisTimeout", tooLong},
		{Options{Prefix: "p", Local: stockade.LocalOptions{Entries: -1}}, "Local.Entries", "-1"},
	} {
		m, err := New(rdb, c.opts)
		wantRefusal(t, m, err, c.field, c.value)
	}
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil)} {
		if m, err := New(rdb, Options{Prefix: "p"}); err == nil || m != nil {
			t.Errorf("a nil %T was taken", rdb)
		}
	}
}

// What a route may not be, neither New nor With takes.
func TestBadRoutes(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	parent, err := New(rdb, Options{Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	bad := []struct {
		route        Route
		field, value string
	}{
		{Route{HitForMiss: -1}, "HitForMiss", "-1ns"},
		{Route{WaitTimeout: -time.Second}, "WaitTimeout", "-1s"},
		{Route{MaxBody: -1}, "MaxBody", "-1"},
		{Route{MaxBody: maxBody + 1}, "MaxBody", "268435457"},
		{Route{MaxVariants: -1}, "MaxVariants", "-1"},
		{Route{MaxVariants: math.MaxInt32 + 1}, "MaxVariants", "2147483648"},
		{Route{Cookies: []string{"ok", "a b"}}, "Cookies", "a b"},
		{Route{Cookies: []string{""}}, "Cookies", ""},
		{Route{NotStored: []string{"X:"}}, "NotStored", "X:"},
		{Route{NotStored: []string{""}}, "NotStored", ""},
		{Route{Targeted: []string{"X:"}}, "Targeted", "X:"},
	}
	for _, d := range []struct {
		field string
		route func(time.Duration) Route
	}{
		{"TTL", func(d time.Duration) Route { return Route{TTL: d} }},
		{"StaleWhileRevalidate", func(d time.Duration) Route { return Route{StaleWhileRevalidate: d} }},
		{"StaleIfError", func(d time.Duration) Route { return Route{StaleIfError: d} }},
		{"KeepFor", func(d time.Duration) Route { return Route{KeepFor: d} }},
		{"HitForMiss", func(d time.Duration) Route { return Route{HitForMiss: d} }},
		{"WaitTimeout", func(d time.Duration) Route { return Route{WaitTimeout: d} }},
	} {
		for value, text := range map[time.Duration]string{1: "1ns", 999 * time.Microsecond: "999µs", maxLifetime + 1: "613200h0m0.000000001s", math.MaxInt64: "2562047h"} {
			bad = append(bad, struct {
				route        Route
				field, value string
			}{d.route(value), d.field, text})
		}
		for _, value := range []time.Duration{time.Millisecond, maxLifetime} {
			if _, err := parent.With(d.route(value)); err != nil {
				t.Errorf("%s of %v: %v", d.field, value, err)
			}
		}
	}
	for _, c := range bad {
		m, err := New(rdb, Options{Prefix: "p", Route: c.route})
		wantRefusal(t, m, err, c.field, c.value)
		m, err = parent.With(c.route)
		wantRefusal(t, m, err, c.field, c.value)
	}
}

func wantRefusal(t testing.TB, m *Middleware, err error, field, value string) {
	t.Helper()
	if m != nil || err == nil || !strings.Contains(err.Error(), field+" is "+value) && !strings.Contains(err.Error(), field+` is "`+value) {
		t.Errorf("%s of %s: got %v, %v, want an error that names both", field, value, m, err)
	}
}

// What is documented to be possible is.
func TestExtremeOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	for what, o := range map[string]Options{
		"the shortest RunTimeout":   {RunTimeout: time.Millisecond},
		"the longest RunTimeout":    {RunTimeout: maxLifetime},
		"a long RedisTimeout":       {RedisTimeout: 5 * time.Second},
		"a short RedisTimeout":      {RedisTimeout: time.Millisecond},
		"one run":                   {MaxRuns: 1},
		"the smallest and fewest":   {Route: Route{MaxBody: 1, MaxVariants: 1}},
		"the greatest and most":     {Route: Route{MaxBody: maxBody, MaxVariants: math.MaxInt32}},
		"nothing where that can be": {Route: Route{TTL: -1, StaleWhileRevalidate: -1, StaleIfError: -1, KeepFor: -1}},
		"no cookies, no names":      {Route: Route{Cookies: []string{}, NotStored: []string{}}},
	} {
		o.Prefix = "p"
		m, err := New(rdb, o)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		_ = m.Close()
	}
}

func TestDefaults(t *testing.T) {
	o, err := Options{Prefix: "p"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "Name", o.Name, "stockade")
	want(t, "RunTimeout", o.RunTimeout, 30*time.Second)
	want(t, "MaxRuns", o.MaxRuns, 1024)
	want(t, "TTL off", o.TTL < 0, true)
	want(t, "StaleWhileRevalidate off", o.StaleWhileRevalidate < 0, true)
	want(t, "StaleIfError off", o.StaleIfError < 0, true)
	want(t, "KeepFor", o.KeepFor, 10*time.Minute)
	want(t, "HitForMiss", o.HitForMiss, 10*time.Second)
	want(t, "WaitTimeout", o.WaitTimeout, 10*time.Second)
	want(t, "MaxBody", o.MaxBody, 1<<20)
	want(t, "MaxVariants", o.MaxVariants, 100)
	want(t, "NotStored", strings.Join(o.NotStored, " "), "X-Request-Id Traceparent Tracestate Server-Timing")
	want(t, "Cookies nil", o.Cookies == nil, true)
	want(t, "Key nil", o.Key == nil, true)
	want(t, "permissions", o.Authorization || o.SetCookie || o.Tags || o.ClientControl, false)
}

// A route has what it does not change from its parent, and leaves the parent as it was.
func TestWith(t *testing.T) {
	parent := serve(t, answers(""), func(o *Options) {
		o.Route = Route{
			TTL: time.Minute, StaleWhileRevalidate: 2 * time.Minute, StaleIfError: 3 * time.Minute, KeepFor: 4 * time.Minute, HitForMiss: 5 * time.Second,
			WaitTimeout: 6 * time.Second, MaxBody: 7, MaxVariants: 8, Key: func(*http.Request) (string, bool) { return "k", true }, Cookies: []string{"c"},
			Authorization: true, SetCookie: true, NotStored: []string{"x-n"}, Targeted: []string{"x-t"}, Tags: true, ClientControl: true,
		}
	}).mw
	same, err := parent.With(Route{})
	if err != nil {
		t.Fatal(err)
	}
	wantRoute := func(r Route, ttl time.Duration) {
		t.Helper()
		want(t, "TTL", r.TTL, ttl)
		want(t, "StaleWhileRevalidate", r.StaleWhileRevalidate, 2*time.Minute)
		want(t, "StaleIfError", r.StaleIfError, 3*time.Minute)
		want(t, "KeepFor", r.KeepFor, 4*time.Minute)
		want(t, "HitForMiss", r.HitForMiss, 5*time.Second)
		want(t, "WaitTimeout", r.WaitTimeout, 6*time.Second)
		want(t, "MaxBody", r.MaxBody, 7)
		want(t, "MaxVariants", r.MaxVariants, 8)
		want(t, "Cookies", strings.Join(r.Cookies, " "), "c")
		want(t, "NotStored", strings.Join(r.NotStored, " "), "X-N")
		want(t, "Targeted", strings.Join(r.Targeted, " "), "X-T")
		want(t, "permissions", r.Authorization && r.SetCookie && r.Tags && r.ClientControl, true)
		if r.Key == nil {
			t.Error("Key is lost")
		}
	}
	wantRoute(same.route, time.Minute)
	none, err := parent.With(Route{TTL: -1})
	if err != nil {
		t.Fatal(err)
	}
	wantRoute(none.route, -1)
	again, err := none.With(Route{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	wantRoute(again.route, time.Hour)
	other, err := parent.With(Route{Cookies: []string{}, NotStored: []string{}, Targeted: []string{}, MaxBody: 9, MaxVariants: 10, KeepFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "no cookies", other.route.Cookies != nil && len(other.route.Cookies) == 0, true)
	want(t, "nothing that is not stored", len(other.route.NotStored), 0)
	want(t, "nothing targeted", len(other.route.Targeted), 0)
	want(t, "MaxBody", other.route.MaxBody, 9)
	want(t, "MaxVariants", other.route.MaxVariants, 10)
	want(t, "KeepFor", other.route.KeepFor, -1)
	wantRoute(parent.route, time.Minute)
	want(t, "one cache", same.shared == parent.shared && other.shared == parent.shared, true)
}

// The slices of options stay the caller's.
func TestOptionsAreCopied(t *testing.T) {
	cookies, names := []string{"a"}, []string{"X-A"}
	o, err := Options{Prefix: "p", Route: Route{Cookies: cookies, NotStored: names}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	cookies[0], names[0] = "b", "X-B"
	want(t, "Cookies", o.Cookies[0], "a")
	want(t, "NotStored", o.NotStored[0], "X-A")
}
