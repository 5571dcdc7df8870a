package stockade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
)

type product struct {
	ID     int
	Name   string
	Tags   []string
	Prices map[string]float64
	Made   time.Time
	Next   *product
}

type box[T any] struct{ Value T }

// roundTrip puts a value through Redis and back, by Set and by a load.
func roundTrip[T any](t *testing.T, s redistest.Server, v T, change ...func(*Options)) {
	t.Helper()
	c := open[T](t, s.Client(t), change...)
	if err := c.Set(t.Context(), "set", v); err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	if _, err := c.Get(t.Context(), "load", func(context.Context) (T, error) { return v, nil }); err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	for _, key := range []string{"set", "load"} {
		e, err := c.Lookup(t.Context(), key)
		if err != nil || e.Source != Hit || !reflect.DeepEqual(e.Value, v) {
			t.Errorf("%T by %s: got %#v, %v, want %#v", v, key, e.Value, err, v)
		}
	}
	if err := c.Invalidate(t.Context(), "set", "load"); err != nil {
		t.Fatal(err)
	}
}

// A type of each kind: a struct, a pointer, a map, an interface, a number, a string, and bytes as they are.
func TestAnyTypeIsStored(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		p := someProduct()
		roundTrip(t, s, p)
		roundTrip(t, s, &p)
		roundTrip[*product](t, s, nil)
		roundTrip(t, s, map[string]any{"a": "b"})
		roundTrip[map[string]any](t, s, nil)
		roundTrip(t, s, "")
		roundTrip(t, s, strings.Repeat("x", 70000))
		roundTrip(t, s, []byte{0, 1, 255})
		roundTrip(t, s, []byte{})
		roundTrip[[]byte](t, s, nil)
		roundTrip(t, s, make([]byte, 300))
		roundTrip(t, s, make([]byte, 70000))
		roundTrip(t, s, int64(0))
		roundTrip[any](t, s, nil)
		roundTrip[any](t, s, "x")
	})
}

func someProduct() product {
	return product{ID: 1, Name: "\xff", Tags: []string{}, Prices: map[string]float64{"€": 0.1}, Made: time.Unix(1, 2), Next: &product{Made: time.Unix(0, 0)}}
}

// The format is all that a type meets on its way. A Cache of each of these types would take a minute to compile.
func TestAnyTypeIsEncoded(t *testing.T) {
	p := someProduct()
	encoded(t, p)
	encoded(t, &p)
	encoded[*product](t, nil)
	encoded(t, []product{p})
	encoded(t, []*product{nil, {Made: time.Unix(3, 0)}})
	encoded[[]string](t, nil)
	encoded(t, map[int]string{-1: ""})
	encoded[map[string]int](t, nil)
	encoded(t, json.RawMessage(`{"a":1}`))
	encoded(t, 0)
	encoded(t, uint64(1<<63))
	encoded(t, int8(-3))
	encoded(t, 1.5)
	encoded(t, true)
	encoded(t, time.Unix(1700000000, 123456789))
	encoded(t, time.Minute)
	encoded(t, box[box[int]]{box[int]{7}})
	encoded(t, [2]string{"a", "b"})
	encoded(t, struct{}{})
	encoded[any](t, nil)
	encoded[any](t, "x")
}

// encoded puts a value through the stored form and back.
func encoded[T any](t *testing.T, v T) {
	t.Helper()
	f := newFormat[T](nil)
	h := head{token: newToken(), loadedAt: 1, freshUntil: 2, staleUntil: 3, cost: 4}
	entry, err := f.encode(h, "tag", &v)
	if err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	e, err := f.decode(string(entry))
	if err != nil || e.head != h || e.etag != "tag" || !reflect.DeepEqual(unboxed[T](e.value), v) {
		t.Errorf("%T: got %#v, %v, want %#v", v, e, err, v)
	}
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)   { return json.Marshal(v) }
func (jsonCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }

type brokenCodec struct{}

func (brokenCodec) Marshal(any) ([]byte, error) { panic("no") }
func (brokenCodec) Unmarshal([]byte, any) error { panic("no") }

func TestCodec(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		with := func(c Codec) func(*Options) { return func(o *Options) { o.Codec = c } }
		roundTrip(t, s, map[string]any{"a": "b"}, with(jsonCodec{}))
		roundTrip(t, s, []byte("x"), with(jsonCodec{}))
		c := open[string](t, s.Client(t), with(brokenCodec{}))
		if err := c.Set(t.Context(), "k", "v"); err == nil {
			t.Error("a codec that panics set a value")
		}
		_, err := c.Get(t.Context(), "k", returns("v").Load)
		var failed *LoadError
		if !errors.As(err, &failed) || failed.Remote {
			t.Errorf("got %v", err)
		}
		want(t, "leases", leases(t, s), 0)
		// What another codec wrote is loaded anew.
		if err := open[string](t, s.Client(t)).Set(t.Context(), "other", "v"); err != nil {
			t.Fatal(err)
		}
		j := open[string](t, s.Client(t), with(jsonCodec{}))
		if v, err := j.Get(t.Context(), "other", returns("new").Load); v != "new" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		want(t, "undecodable", j.Stats().Undecodable > 0, true)
	})
}

// What is stored is plain msgpack.
func TestTheStoredFormIsMsgpack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		c := open[product](t, rdb, func(o *Options) { o.TTL = time.Minute; o.StaleFor = time.Hour })
		if err := c.SetEntry(t.Context(), "k", Entry[product]{Value: product{Name: "n"}, ETag: "e", Age: time.Second}); err != nil {
			t.Fatal(err)
		}
		raw, err := rdb.Get(t.Context(), "test:K:v:{k}").Bytes()
		if err != nil {
			t.Fatal(err)
		}
		var fields []any
		if err := msgpack.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		if len(fields) != entryFields || fields[7] != "e" || fields[8].(map[string]any)["Name"] != "n" {
			t.Errorf("got %v", fields)
		}
		loaded, fresh, stale := fields[3].(uint64), fields[4].(uint64), fields[5].(uint64)
		if fresh-loaded != 61000 || stale-fresh != 3600000 {
			t.Errorf("loaded %d, fresh until %d, stale until %d", loaded, fresh, stale)
		}
		ttl, err := rdb.PTTL(t.Context(), "test:K:v:{k}").Result()
		if err != nil || ttl > time.Hour+time.Minute || ttl < time.Hour+50*time.Second {
			t.Errorf("PTTL %v, %v", ttl, err)
		}
	})
}

func TestWhatCannotBeReadIsLoadedAndOverwritten(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		good, err := newFormat[int](nil).encode(head{token: newToken(), freshUntil: 1 << 50, staleUntil: 1 << 50}, "", new(7))
		if err != nil {
			t.Fatal(err)
		}
		rdb := s.Client(t)
		for i, raw := range []string{"", "x", strings.Repeat("x", 20000), string(good[:script.HeadLen]), string(good), string(good[:20]), string(good[:len(good)-1]) + "\xc1"} {
			c := open[string](t, s.Client(t))
			key := fmt.Sprint(i)
			if err := rdb.Set(t.Context(), c.view.names(key).Value, raw, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Lookup(t.Context(), key); !errors.Is(err, ErrMiss) {
				t.Errorf("%.20q: Lookup got %v", raw, err)
			}
			o := returns("v")
			for range 2 {
				if v, err := c.Get(t.Context(), key, o.Load); v != "v" || err != nil {
					t.Errorf("%.20q: got %q, %v", raw, v, err)
				}
			}
			wantLoads(t, o, 1)
			if n := c.Stats().Undecodable; n < 1 {
				t.Errorf("%.20q: %d undecodable", raw, n)
			}
		}
	})
}

func TestWhatANewerVersionWroteIsLeftAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		c := open[string](t, rdb)
		name := c.view.names("k").Value
		const raw = "\x9a\x02whatever they write"
		if err := rdb.Set(t.Context(), name, raw, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(t.Context(), "k", returns("v").Load); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if _, err := c.Get(t.Context(), "k", fails(0, ErrNotFound).Load); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if got, err := rdb.Get(t.Context(), name).Result(); got != raw || err != nil {
			t.Errorf("it is %q now, %v", got, err)
		}
		want(t, "leases", leases(t, s), 0)
	})
}

type cloned struct{ List []int }

func (c *cloned) Clone() *cloned { return &cloned{append([]int(nil), c.List...)} }

func TestValuesWithCloneAreNotShared(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		c := open[*cloned](t, s.Client(t))
		release := make(chan struct{})
		load := func(context.Context) (*cloned, error) { <-release; return &cloned{[]int{1}}, nil }
		got := make(chan *cloned)
		for range 3 {
			go func() {
				v, err := c.Get(t.Context(), "k", load)
				if err != nil {
					t.Error(err)
				}
				got <- v
			}()
		}
		time.Sleep(20 * time.Millisecond)
		close(release)
		seen := map[*cloned]bool{}
		for range 3 {
			seen[<-got] = true
		}
		want(t, "different values", len(seen), 3)
		if v, err := c.Get(t.Context(), "nil", func(context.Context) (*cloned, error) { return nil, nil }); v != nil || err != nil {
			t.Errorf("a nil: got %v, %v", v, err)
		}
	})
}
