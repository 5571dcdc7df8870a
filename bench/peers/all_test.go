package peers

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// trait is how a contestant differs in what the test asks of all.
type trait struct {
	real bool // needs what miniredis does not have
	late bool // may see the old value for a moment after a change, or that there is none
}

var traits = map[string]trait{
	"rockscache":       {late: true},
	"rueidis tracked":  {real: true, late: true},
	"rueidisaside":     {real: true, late: true},
	"stockade polling": {real: true},
}

type product struct {
	ID    int
	Name  string
	Price float64
	Tags  []string
}

func TestAll(t *testing.T) {
	each(t, func(t *testing.T, server redistest.Server, i int) {
		before := goleak.IgnoreCurrent()
		testContestant(t, server, All[[]byte]()[i])
		testProducts(t, server, All[product]()[i])
		leavesNothing(t, All[int]()[i].Name, before)
	})
}

// each runs a test for the contestants on every server that they can use.
func each(t *testing.T, test func(t *testing.T, server redistest.Server, i int)) {
	t.Run("fake", func(t *testing.T) {
		fake := redistest.Fake(t)
		for i, c := range All[int]() {
			if !traits[c.Name].real {
				t.Run(c.Name, func(t *testing.T) { test(t, fake, i) })
			}
		}
	})
	t.Run("real", func(t *testing.T) {
		server := redistest.NewReal(t)
		for i, c := range All[int]() {
			t.Run(c.Name, func(t *testing.T) { test(t, server, i) })
		}
	})
}

// config has an address at which nobody is: a connection that does not use Dial fails.
func config(server redistest.Dialer, prefix string) Config {
	return Config{Redis: "127.0.0.1:1", Dial: server.Dial, Prefix: prefix, TTL: time.Minute, Load: 10 * time.Millisecond}
}

func testContestant(t *testing.T, server redistest.Server, c Contestant[[]byte]) {
	conf := config(server, "bytes "+c.Name)
	late := traits[c.Name].late
	mine, other := open(t, c, conf), open(t, c, conf)
	t.Logf("settings: %q", mine.Settings())

	t.Run("a miss loads once and stores", func(t *testing.T) {
		o := &origin{value: "1"}
		o.want(t, mine, "missing", "1", 1)
		if late {
			o.wantHit(t, mine, "missing")
		}
		loads := o.loads.Load()
		o.value = "2"
		o.want(t, mine, "missing", "1", loads)
		stored(t, server, conf, "missing")
		o.want(t, other, "missing", "1", loads)
	})
	t.Run("Set is read back", func(t *testing.T) {
		o := &origin{value: "loaded"}
		for _, value := range []string{"set", "set again"} {
			if err := mine.Set(t.Context(), "set", []byte(value)); err != nil {
				t.Fatal(err)
			}
			if late {
				o.wantSoon(t, mine, "set", value)
			}
			o.want(t, mine, "set", value, 0)
			stored(t, server, conf, "set")
		}
		o.want(t, other, "set", "set again", 0)
	})
	t.Run("Invalidate makes the next Get load", func(t *testing.T) {
		o := &origin{value: "old"}
		o.want(t, mine, "changed", "old", 1)
		stored(t, server, conf, "changed")
		o.value = "new"
		if err := mine.Invalidate(t.Context(), "changed"); err != nil {
			t.Fatal(err)
		}
		if late {
			o.wantSoon(t, mine, "changed", "new")
		} else {
			o.want(t, mine, "changed", "new", 2)
		}
	})
	t.Run("the error of a load", func(t *testing.T) {
		o := &origin{err: errors.New("the database is down")}
		if _, err := o.get(t, mine, "failing"); !errors.Is(err, o.err) {
			t.Errorf("got %v, want the error of the load", err)
		}
		o.value, o.err = "up", nil
		o.wantSoon(t, mine, "failing", "up")
	})
	t.Run("many callers", func(t *testing.T) {
		o := &origin{value: "v", takes: 20 * time.Millisecond}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got, err := o.get(t, mine, "hot"); err != nil || got != "v" {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		wg.Wait()
		t.Logf("%d loads", o.loads.Load())
	})
	shut(t, mine)
	shut(t, other)
}

func testProducts(t *testing.T, server redistest.Server, c Contestant[product]) {
	conf := config(server, "products "+c.Name)
	mine, other := open(t, c, conf), open(t, c, conf)
	want := product{7, "a lamp", 12.5, []string{"light", strings.Repeat("x", 100)}}
	for _, p := range []Peer[product]{mine, mine, other} {
		got, err := p.Get(t.Context(), "p", func(context.Context) (product, error) { return want, nil })
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		stored(t, server, conf, "p")
	}
	shut(t, mine)
	shut(t, other)
}

// stored waits for a value that is written in the background.
func stored(t *testing.T, server redistest.Server, c Config, key string) {
	t.Helper()
	rdb := server.Client(t)
	defer func() { _ = rdb.Close() }()
	redistest.Eventually(t, time.Second, key+" is stored", func() bool {
		return len(rdb.Keys(t.Context(), c.Prefix+":*"+key+"*").Val()) > 0
	})
}

func open[T any](t *testing.T, c Contestant[T], conf Config) Peer[T] {
	t.Helper()
	p, err := c.Open(conf)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func shut[T any](t *testing.T, p Peer[T]) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
