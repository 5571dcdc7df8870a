package peers

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// elsewhere is an address at which nobody is: a connection that does not use Config.Dial fails.
const elsewhere = "127.0.0.1:1"

// trait is how a contestant differs in what the test asks of all.
type trait struct {
	real bool // needs what miniredis does not have
	late bool // the old value may be served for a moment after a change
}

var traits = map[string]trait{
	"rockscache":       {late: true},
	"rueidis tracked":  {real: true, late: true},
	"rueidisaside":     {real: true, late: true},
	"stockade polling": {real: true},
}

func TestAll(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		fake := redistest.Fake(t)
		for i, c := range All[[]byte]() {
			t.Run(c.Name, func(t *testing.T) {
				if traits[c.Name].real {
					if _, err := c.Open(config(fake, c.Name)); err == nil {
						t.Error("opened on a server that cannot do what it needs")
					}
					return
				}
				testContestant(t, fake, c, All[product]()[i])
			})
		}
	})
	t.Run("real", func(t *testing.T) {
		server := redistest.NewReal(t)
		for i, c := range All[[]byte]() {
			t.Run(c.Name, func(t *testing.T) { testContestant(t, server, c, All[product]()[i]) })
		}
	})
}

func TestOpen(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All[int]() {
		if c.Name != strings.ToLower(c.Name) || seen[c.Name] || c.About == "" {
			t.Errorf("%+v: a name of its own in lower case, and what it is", c)
		}
		seen[c.Name] = true
	}
	for name := range traits {
		if !seen[name] {
			t.Errorf("traits of %q, who is no contestant", name)
		}
	}
	if _, err := Open[int]("nobody", Config{}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("Open of a name that nobody has: %v", err)
	}
}

type product struct {
	ID    int
	Name  string
	Price float64
	Tags  []string
}

func config(server redistest.Dialer, name string) Config {
	return Config{
		Redis: elsewhere, Dial: server.Dial, Prefix: "test " + name, TTL: time.Minute, Load: 10 * time.Millisecond, NoJitter: true,
	}
}

func testContestant(t *testing.T, server redistest.Server, c Contestant[[]byte], ofProducts Contestant[product]) {
	leaks := goleak.IgnoreCurrent()
	conf := config(server, c.Name)
	stored := func(key string) {
		t.Helper()
		rdb := server.Client(t)
		defer func() { _ = rdb.Close() }()
		redistest.Eventually(t, time.Second, "it is stored", func() bool {
			return rdb.Exists(t.Context(), conf.Prefix+":"+key).Val() == 1 || len(rdb.Keys(t.Context(), "*"+conf.Prefix+"*"+key+"*").Val()) > 0
		})
	}
	mine, other := open(t, c, conf), open(t, c, conf)
	t.Logf("settings: %s", mine.Settings())

	t.Run("a miss loads once and stores", func(t *testing.T) {
		o := &origin{value: []byte("1")}
		o.want(t, mine, "a", "1", 1)
		o.value = []byte("2")
		o.want(t, mine, "a", "1", 1)
		stored("a")
		o.want(t, other, "a", "1", 1)
	})
	t.Run("Set is read back", func(t *testing.T) {
		o := &origin{value: []byte("loaded")}
		for _, value := range []string{"set", "set again"} {
			if err := mine.Set(t.Context(), "set", []byte(value)); err != nil {
				t.Fatal(err)
			}
			if traits[c.Name].late {
				o.wantSoon(t, mine, "set", value)
			}
			o.want(t, mine, "set", value, 0)
		}
		stored("set")
		o.want(t, other, "set", "set again", 0)
	})
	t.Run("Invalidate makes the next Get load", func(t *testing.T) {
		o := &origin{value: []byte("old")}
		o.want(t, mine, "changed", "old", 1)
		stored("changed")
		o.value = []byte("new")
		if err := mine.Invalidate(t.Context(), "changed"); err != nil {
			t.Fatal(err)
		}
		if traits[c.Name].late {
			o.wantSoon(t, mine, "changed", "new")
		}
		o.want(t, mine, "changed", "new", 2)
	})
	t.Run("a struct", func(t *testing.T) {
		conf := conf
		conf.Prefix += " of products"
		mine, other := open(t, ofProducts, conf), open(t, ofProducts, conf)
		want := product{7, "a lamp", 12.5, []string{"light", strings.Repeat("x", 100)}}
		for _, p := range []Peer[product]{mine, mine, other} {
			got, err := p.Get(t.Context(), "p", func(context.Context) (product, error) { return want, nil })
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			stored("of products:p")
		}
		shut(t, mine)
		shut(t, other)
	})
	t.Run("the error of a load", func(t *testing.T) {
		o := &origin{err: errors.New("the database is down")}
		if _, err := mine.Get(t.Context(), "failing", o.load); !errors.Is(err, o.err) {
			t.Errorf("got %v, want the error of the load", err)
		}
		o.value, o.err = []byte("up"), nil
		o.wantSoon(t, mine, "failing", "up")
	})
	t.Run("many callers", func(t *testing.T) {
		o := &origin{value: []byte("v"), takes: 20 * time.Millisecond}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got, err := mine.Get(t.Context(), "hot", o.load); err != nil || string(got) != "v" {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		wg.Wait()
		t.Logf("%d loads", o.loads.Load())
	})
	t.Run("a value expires", func(t *testing.T) {
		conf := conf
		conf.Prefix += " briefly"
		conf.TTL = 300 * time.Millisecond
		p := open(t, c, conf)
		o := &origin{value: []byte("old")}
		o.want(t, p, "k", "old", 1)
		began := time.Now()
		o.value = []byte("new")
		o.wantSoon(t, p, "k", "new")
		if took := time.Since(began); took < conf.TTL/2 {
			t.Errorf("a TTL of %v was over after %v", conf.TTL, took)
		} else {
			t.Logf("after %v; settings: %s", took, p.Settings())
		}
		shut(t, p)
	})
	shut(t, mine)
	shut(t, other)
	goleak.VerifyNone(t, leaks, sturdycEvicts)
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

// origin is what is loaded. Its fields change only while nobody loads.
type origin struct {
	value []byte
	err   error
	takes time.Duration
	loads atomic.Int64
}

func (o *origin) load(context.Context) ([]byte, error) {
	o.loads.Add(1)
	time.Sleep(o.takes)
	return o.value, o.err
}

func (o *origin) want(t *testing.T, p Peer[[]byte], key, value string, loads int64) {
	t.Helper()
	got, err := p.Get(t.Context(), key, o.load)
	if err != nil || string(got) != value {
		t.Errorf("Get of %s: %q, %v, want %q", key, got, err, value)
	}
	if n := o.loads.Load(); n != loads {
		t.Errorf("Get of %s: %d loads, want %d", key, n, loads)
	}
}

func (o *origin) wantSoon(t *testing.T, p Peer[[]byte], key, value string) {
	t.Helper()
	redistest.Eventually(t, 3*time.Second, "Get of "+key+" is "+value, func() bool {
		got, err := p.Get(t.Context(), key, o.load)
		return err == nil && string(got) == value
	})
}
