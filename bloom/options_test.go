package bloom

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestBadOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	for _, c := range []struct {
		opts         Options
		field, value string
	}{
		{Options{Keys: 1}, "Prefix", `""`},
		{Options{Prefix: "a{b", Keys: 1}, "Prefix", "a{b"},
		{Options{Prefix: "p"}, "Keys", "0"},
		{Options{Prefix: "p", Keys: -1}, "Keys", "-1"},
		{Options{Prefix: "p", Keys: math.MaxInt64}, "Keys", "9223372036854775807"},
		{Options{Prefix: "p", Keys: 1, Rate: -0.1}, "Rate", "-0.1"},
		{Options{Prefix: "p", Keys: 1, Rate: 1}, "Rate", "1"},
		{Options{Prefix: "p", Keys: 1, Rate: math.NaN()}, "Rate", "NaN"},
		{Options{Prefix: "p", Keys: 1, Rate: 1e-300}, "Rate", "1e-300"},
	} {
		_, err := New(rdb, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), c.value) {
			t.Errorf("%+v: got %v, want an error that names %s and %s", c.opts, err, c.field, c.value)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), ring} {
		if _, err := New(rdb, Options{Prefix: "p", Keys: 1}); err == nil || !strings.Contains(err.Error(), "client") {
			t.Errorf("%T: got %v", rdb, err)
		}
	}
}

func TestBadArguments(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		f := open(t, s.Client(t))
		build(t, f)
		var none context.Context
		gone, leave := context.WithCancelCause(t.Context())
		why := errors.New("why")
		leave(why)
		for name, call := range map[string]func(ctx context.Context) error{
			"MayExist": func(ctx context.Context) error { _, err := f.MayExist(ctx, []string{"k"}); return err },
			"Add":      func(ctx context.Context) error { return f.Add(ctx, "k") },
			"Fill":     func(ctx context.Context) error { return f.Fill(ctx, Keys(slices.Values([]string{"k"})), nil) },
			"Rebuild":  func(ctx context.Context) error { return f.Rebuild(ctx, Keys(slices.Values([]string{"k"})), nil) },
			"Stats":    func(ctx context.Context) error { _, err := f.Stats(ctx); return err },
		} {
			if err := call(none); err == nil || !strings.Contains(err.Error(), "ctx") {
				t.Errorf("%s with a nil context: got %v", name, err)
			}
			if err := call(gone); !errors.Is(err, why) {
				t.Errorf("%s with a context that has ended: got %v", name, err)
			}
		}
		for name, err := range map[string]error{"Fill": f.Fill(t.Context(), nil, nil), "Rebuild": f.Rebuild(t.Context(), nil, nil)} {
			if err == nil || !strings.Contains(err.Error(), "keys") {
				t.Errorf("%s of nil: got %v", name, err)
			}
		}
		if err := f.AddMany(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}
