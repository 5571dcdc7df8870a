package stockade

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

type copied struct{ B []byte }

func (c *copied) Clone() *copied { return &copied{bytes.Clone(c.B)} }

// Callers share what the tier has, unless T has a method Clone: then nobody sees what another does with its value.
func TestLocalValuesAreCloned(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		shared := hearing[[]byte](t, s.Client(t), func(o *Options) { o.Prefix = "shared" })
		set(t, shared, "k", []byte("v"))
		_, _ = shared.Lookup(t.Context(), "k")
		one, _ := shared.Lookup(t.Context(), "k")
		two, _ := shared.Lookup(t.Context(), "k")
		want(t, "one value", &one.Value[0] == &two.Value[0], true)

		soft := func(o *Options) { o.TTL, o.StaleFor = time.Minute, time.Hour }
		rdb := s.Client(t)
		c := hearing[*copied](t, rdb, soft)
		load := func(context.Context) (*copied, error) { return &copied{[]byte("fine")}, nil }
		many := func(_ context.Context, keys []string) (map[string]*copied, error) {
			return map[string]*copied{"k": {[]byte("fine")}}, nil
		}
		get := map[string]func(key string) *copied{
			"get": func(key string) *copied { v, _ := c.Get(t.Context(), key, load); return v },
			"fetch": func(key string) *copied {
				e, _ := c.Fetch(t.Context(), key, func(ctx context.Context, _ *Entry[*copied]) (Entry[*copied], error) {
					v, err := load(ctx)
					return Entry[*copied]{Value: v}, err
				})
				return e.Value
			},
			"lookup": func(key string) *copied { e, _ := c.Lookup(t.Context(), key); return e.Value },
			"batch":  func(key string) *copied { m, _ := c.GetMany(t.Context(), []string{key}, many); return m[key] },
		}
		check := func(what string) {
			t.Helper()
			for name, f := range get {
				v := f("k")
				if v == nil || string(v.B) != "fine" {
					t.Errorf("%s: %s: got %v", what, name, v)
				} else {
					copy(v.B, "bad!")
				}
			}
		}
		_ = get["get"]("k")
		check("loaded here")
		other := open[*copied](t, s.Client(t), soft)
		for name, f := range get {
			set(t, other, "k", &copied{[]byte("fine")})
			synctest.Wait()
			if v := f("k"); v == nil || string(v.B) != "fine" {
				t.Errorf("from Redis: %s: got %v", name, v)
			} else {
				copy(v.B, "bad!")
			}
			check("read from Redis by " + name)
		}
		// A loader may do with the old value what it likes.
		time.Sleep(2 * time.Minute)
		_, _ = c.Lookup(t.Context(), "k") // the tier has it for an outage
		_, err := c.Fetch(t.Context(), "k", func(_ context.Context, old *Entry[*copied]) (Entry[*copied], error) {
			copy(old.Value.B, "bad!")
			return Entry[*copied]{}, errSource
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		faults := redistest.NewFaults(t)
		rdb.AddHook(faults)
		faults.Refuse(1000, func([]string) bool { return true }, refusal("ERR out of order"))
		defer faults.Clear()
		if e, _, ok := c.view.recall("k"); !ok || string(unbox[*copied](e).Value.B) != "fine" {
			t.Errorf("kept for an outage: %v", e)
		}
		for name, f := range get {
			if name == "lookup" {
				continue // tells that Redis fails
			}
			for range 2 {
				if v := f("k"); v == nil || string(v.B) != "fine" {
					t.Errorf("in an outage: %s: got %v", name, v)
				} else {
					copy(v.B, "bad!")
				}
			}
		}
	})
}

type brittle struct{ S string }

func (b brittle) Clone() brittle {
	if b.S == "broken" {
		panic("Clone")
	}
	return b
}

// A Clone that panics for a loader is the failure of that load: no caller is there to see it, and the process goes on.
func TestAClonePanicsForALoader(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var told error
		c := open[brittle](t, s.Client(t), func(o *Options) {
			o.TTL, o.KeepFor = time.Minute, time.Hour
			o.Observer.Load = func(e LoadEvent) { told = e.Err }
		})
		set(t, c, "k", brittle{"broken"})
		time.Sleep(2 * time.Minute)
		var panicked *PanicError
		load := func(context.Context, *Entry[brittle]) (Entry[brittle], error) { return Entry[brittle]{}, nil }
		if _, err := c.Fetch(t.Context(), "k", load); !errors.As(err, &panicked) || panicked.Value != "Clone" {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if !errors.As(told, &panicked) {
			t.Errorf("told %v", told)
		}
	})
}
