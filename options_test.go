package stockade

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Each wrong option is refused by an error that names the field and the value.
func TestBadOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	for _, c := range []struct {
		opts  Options
		field string
		value string
	}{
		{Options{}, "Prefix", `""`},
		{Options{Prefix: "a{b"}, "Prefix", "a{b"},
		{Options{Prefix: "a}"}, "Prefix", "a}"},
		{Options{Prefix: "p", TTL: -1}, "TTL", "-1ns"},
		{Options{Prefix: "p", TTL: 1}, "TTL", "1ns"},
		{Options{Prefix: "p", TTL: 999 * time.Microsecond}, "TTL", "999µs"},
		{Options{Prefix: "p", TTL: math.MaxInt64}, "TTL", "2562047h47m16.854775807s"},
		{Options{Prefix: "p", Jitter: 1}, "Jitter", "1"},
		{Options{Prefix: "p", Jitter: math.NaN()}, "Jitter", "NaN"},
		{Options{Prefix: "p", StaleFor: 500 * time.Microsecond}, "StaleFor", "500µs"},
		{Options{Prefix: "p", StaleFor: math.MaxInt64}, "StaleFor", "2562047h"},
		{Options{Prefix: "p", KeepFor: math.MaxInt64}, "KeepFor", "2562047h"},
		{Options{Prefix: "p", EarlyRefresh: math.Inf(1)}, "EarlyRefresh", "+Inf"},
		{Options{Prefix: "p", EarlyRefresh: math.NaN()}, "EarlyRefresh", "NaN"},
		{Options{Prefix: "p", AbsentTTL: 1}, "AbsentTTL", "1ns"},
		{Options{Prefix: "p", FailureBackoff: 1}, "FailureBackoff", "1ns"},
		{Options{Prefix: "p", FailureBackoff: math.MaxInt64}, "FailureBackoff", "2562047h"},
		{Options{Prefix: "p", LoadTimeout: -1}, "LoadTimeout", "-1ns"},
		{Options{Prefix: "p", RedisTimeout: -time.Second}, "RedisTimeout", "-1s"},
		{Options{Prefix: "p", LeaseTTL: 999 * time.Millisecond}, "LeaseTTL", "999ms"},
		{Options{Prefix: "p", LeaseTTL: math.MaxInt64}, "LeaseTTL", "2562047h"},
		{Options{Prefix: "p", RedisTimeout: time.Second}, "LeaseTTL", "2s"},
		{Options{Prefix: "p", MaxLoads: -1}, "MaxLoads", "-1"},
		{Options{Prefix: "p", WhenRedisFails: 7}, "WhenRedisFails", "7"},
		{Options{Prefix: "p", Local: LocalOptions{Entries: -1}}, "Local.Entries", "-1"},
		{Options{Prefix: "p", Local: LocalOptions{Entries: 1, TTL: -1}}, "Local.TTL", "-1ns"},
		{Options{Prefix: "p", Local: LocalOptions{Entries: 1, TTL: time.Microsecond}}, "Local.TTL", "1µs"},
		{Options{Prefix: "p", Local: LocalOptions{Entries: 1, TTL: math.MaxInt64}}, "Local.TTL", "2562047h"},
		{Options{Prefix: "p", Local: LocalOptions{TTL: time.Minute}}, "Local.TTL", "1m0s"},
	} {
		_, err := New[string](rdb, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), c.value) {
			t.Errorf("%+v: got %v, want an error that names %s and %s", c.opts, err, c.field, c.value)
		}
	}
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		if _, err := New[string](rdb, Options{Prefix: "p"}); err == nil {
			t.Errorf("a nil %T was taken", rdb)
		}
	}
	if _, err := New[string](rdb, Options{Prefix: "p", TTL: time.Millisecond, RedisTimeout: time.Millisecond}); err != nil {
		t.Errorf("the smallest TTL: %v", err)
	}
}

func TestDefaults(t *testing.T) {
	o, err := Options{Prefix: "p"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "TTL", o.TTL, 5*time.Minute)
	want(t, "Jitter", o.Jitter, 0.1)
	want(t, "StaleFor off", o.StaleFor <= 0, true)
	want(t, "EarlyRefresh", o.EarlyRefresh, 1)
	want(t, "AbsentTTL", o.AbsentTTL, 30*time.Second)
	want(t, "FailureBackoff", o.FailureBackoff, 100*time.Millisecond)
	want(t, "LoadTimeout", o.LoadTimeout, 30*time.Second)
	want(t, "LeaseTTL", o.LeaseTTL, 2*time.Second)
	want(t, "MaxLoads", o.MaxLoads, 64)
	want(t, "RedisTimeout", o.RedisTimeout, 250*time.Millisecond)
	o, _ = Options{Prefix: "p", TTL: 5 * time.Millisecond}.complete()
	want(t, "AbsentTTL of a short TTL", o.AbsentTTL, time.Millisecond)
}

func TestBadArguments(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		var none context.Context
		gone, leave := context.WithCancelCause(t.Context())
		why := errors.New("why")
		leave(why)
		for name, call := range map[string]func(ctx context.Context) error{
			"Get": func(ctx context.Context) error { _, err := c.Get(ctx, "k", returns("v").Load); return err },
			"Fetch": func(ctx context.Context) error {
				_, err := c.Fetch(ctx, "k", func(context.Context, *Entry[string]) (Entry[string], error) { return Entry[string]{}, nil })
				return err
			},
			"Lookup":     func(ctx context.Context) error { _, err := c.Lookup(ctx, "k"); return err },
			"Set":        func(ctx context.Context) error { return c.Set(ctx, "k", "v") },
			"Invalidate": func(ctx context.Context) error { return c.Invalidate(ctx, "k") },
			"Expire":     func(ctx context.Context) error { return c.Expire(ctx, "k") },
		} {
			if err := call(none); err == nil || !strings.Contains(err.Error(), "ctx") {
				t.Errorf("%s with a nil context: got %v", name, err)
			}
			if err := call(gone); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Errorf("%s with a context that has ended: got %v", name, err)
			}
		}
		if _, err := c.Get(t.Context(), "k", nil); err == nil {
			t.Error("Get took a nil loader")
		}
		if _, err := c.Fetch(t.Context(), "k", nil); err == nil {
			t.Error("Fetch took a nil loader")
		}
		if err := c.Invalidate(t.Context()); err != nil {
			t.Errorf("no keys: %v", err)
		}
	})
}

// Any byte string is a key, and no two are the same.
func TestOddKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		keys := []string{
			"", "%", "%25", "x", "{x}", "{}", "}{", "{{x}}", "a{b", "a}b", "a{}b{c}", "{a}{b}", "\xff\xfe", "a b\r\nc", "\x00",
			"K:v:{x}", "test:K:v:{x}", strings.Repeat("k", 1024), strings.Repeat("k", 1025), strings.Repeat("{", 1<<20), "%7B", "%7Bx%7D",
		}
		for i, key := range keys {
			if v, err := c.Get(t.Context(), key, returns(fmt.Sprint(i)).Load); err != nil || v != fmt.Sprint(i) {
				t.Errorf("%.20q: got %q, %v", key, v, err)
			}
		}
		for i, key := range keys {
			if e, err := c.Lookup(t.Context(), key); err != nil || e.Value != fmt.Sprint(i) {
				t.Errorf("%.20q: got %q, %v", key, e.Value, err)
			}
		}
		if err := c.Invalidate(t.Context(), keys...); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Client(t).DBSize(t.Context()).Result(); n != 0 || err != nil {
			t.Errorf("%d keys left, %v", n, err)
		}
	})
}

func TestWith(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t), func(o *Options) { o.TTL = time.Hour; o.StaleFor = time.Hour })
		short := c.With(Policy{TTL: 50 * time.Millisecond, StaleFor: -1})
		if err := short.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		if _, err := c.Lookup(t.Context(), "k"); !errors.Is(err, ErrMiss) {
			t.Errorf("got %v", err)
		}
		bad := c.With(Policy{Jitter: 2})
		for _, view := range []*Cache[string]{bad, bad.With(Policy{Jitter: 0.5})} {
			if _, err := view.Get(t.Context(), "k", returns("v").Load); err == nil || !strings.Contains(err.Error(), "Jitter") {
				t.Errorf("got %v", err)
			}
			if err := view.Set(t.Context(), "k", "v"); err == nil {
				t.Error("Set with a wrong policy")
			}
		}
	})
}

func TestWrap(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[string](t, s.Client(t))
		loads := 0
		find := Wrap(c, func(id int) string { return fmt.Sprint(id) }, func(_ context.Context, id int) (string, error) {
			loads++
			return fmt.Sprint("product ", id), nil
		})
		for range 2 {
			if v, err := find(t.Context(), 7); v != "product 7" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		}
		want(t, "loads", loads, 1)
	})
}
