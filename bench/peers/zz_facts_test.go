package peers

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/stockade-cache/stockade/internal/redistest"
)

type cconn struct {
	net.Conn
	n *atomic.Int64
}

func (c cconn) Write(b []byte) (int, error) { c.n.Add(int64(len(b))); return c.Conn.Write(b) }

func TestFacts(t *testing.T) {
	s := redistest.NewReal(t)
	rdb := s.Client(t)
	stat := func() map[string]string {
		out := map[string]string{}
		for _, l := range strings.Split(rdb.Info(t.Context(), "commandstats").Val(), "\r\n") {
			if k, v, ok := strings.Cut(l, ":"); ok {
				out[strings.TrimPrefix(k, "cmdstat_")] = strings.TrimPrefix(strings.Split(v, ",")[0], "calls=")
			}
		}
		return out
	}
	reset := func() { rdb.ConfigResetStat(t.Context()) }

	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, 11 * time.Second, 12 * time.Second, 60 * time.Second} {
		o := rockscache.NewDefaultOptions()
		rc := rockscache.NewClient(rdb, o)
		n := 0
		for range 20 {
			rc.Fetch(fmt.Sprint("raw", ttl), ttl, func() (string, error) { n++; return "v", nil })
		}
		t.Logf("rockscache defaults ttl %v: 20 fetches, %d loads, PTTL %v", ttl, n, rdb.PTTL(t.Context(), fmt.Sprint("raw", ttl)).Val())
	}

	// bytes & commands per hit and contended miss
	for _, name := range []string{"none", "singleflight", "go-redis/cache", "redsync", "redislock", "rockscache", "rockscache strong", "sturdyc", "rueidis", "rueidis tracked", "rueidisaside", "stockade"} {
		var bytes atomic.Int64
		conf := config(s, "facts "+name)
		conf.Dial = func(ctx context.Context, n, a string) (net.Conn, error) {
			c, err := s.Dial(ctx, n, a)
			return cconn{c, &bytes}, err
		}
		a, _ := Open[[]byte](name, conf)
		b, _ := Open[[]byte](name, conf)
		o := &origin{value: "v", takes: 100 * time.Millisecond}
		a.Get(t.Context(), "warm", o.load)
		time.Sleep(50 * time.Millisecond)
		bytes.Store(0)
		for range 100 {
			a.Get(t.Context(), "warm", o.load)
		}
		perHit := float64(bytes.Load()) / 100
		for _, p := range []Peer[[]byte]{a, b} {
			p.Get(t.Context(), "warm2", o.load)
		}
		o = &origin{value: "v", takes: 100 * time.Millisecond}
		reset()
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 40 {
			wg.Go(func() {
				p := a
				if i%2 == 1 {
					p = b
				}
				if _, err := p.Get(t.Context(), "cold", o.load); err != nil {
					t.Log(name, err)
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		t.Logf("%-18s %.0f B sent per hit; 2 x 20 callers, 100 ms: %d loads, last after %v, %v", name, perHit, o.loads.Load(), took.Round(time.Millisecond), stat())
		a.Close()
		b.Close()
	}

	// tracked: nil after own set
	for _, name := range []string{"rueidis tracked", "rueidisaside"} {
		p, _ := Open[[]byte](name, config(s, "nil "+name))
		again, stale := 0, 0
		for i := range 1000 {
			o := &origin{value: "v"}
			k := fmt.Sprint(i)
			p.Get(t.Context(), k, o.load)
			p.Get(t.Context(), k, o.load)
			if o.loads.Load() > 1 {
				again++
			}
			time.Sleep(time.Millisecond)
			o.get(t, p, k)
			p.Invalidate(t.Context(), k)
			o.value = "new"
			if got, _ := o.get(t, p, k); got != "new" {
				stale++
			}
		}
		t.Logf("%s: after a load the next Get loaded again %d of 1000; after Invalidate the next Get was old %d of 1000", name, again, stale)
		p.Close()
	}

	// sturdyc order
	{
		p, _ := Open[[]byte]("sturdyc", config(s, "order"))
		wrong, back := 0, 0
		for i := range 1000 {
			k := fmt.Sprint(i)
			p.Set(t.Context(), k, []byte("1"))
			p.Set(t.Context(), k, []byte("2"))
			p.Set(t.Context(), "x"+k, []byte("1"))
			p.Invalidate(t.Context(), "x"+k)
		}
		time.Sleep(200 * time.Millisecond)
		for i := range 1000 {
			if !strings.Contains(rdb.Get(t.Context(), fmt.Sprint("order:", i)).Val(), "Mg==") {
				wrong++
			}
			if rdb.Exists(t.Context(), fmt.Sprint("order:x", i)).Val() == 1 {
				back++
			}
		}
		t.Logf("sturdyc: two Sets left the first in Redis %d of 1000; an entry invalidated right after its Set is in Redis %d of 1000", wrong, back)
		p.Close()
	}

	// cancelled context in background refresh
	{
		p, _ := Open[[]byte]("rockscache", config(s, "cancel"))
		o := &origin{value: "old", takes: 20 * time.Millisecond}
		o.get(t, p, "k")
		p.Invalidate(t.Context(), "k")
		o.value = "new"
		began := time.Now()
		for {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			v, _ := p.Get(ctx, "k", o.load)
			cancel()
			if string(v) == "new" || time.Since(began) > 15*time.Second {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("rockscache with contexts that end after each Get: new after %v, %d loads", time.Since(began), o.loads.Load())
		p.Close()
	}
	// aside: load longer than TTL
	{
		c := config(s, "long")
		c.TTL = 200 * time.Millisecond
		p, _ := Open[[]byte]("rueidisaside", c)
		o := &origin{value: "v", takes: 300 * time.Millisecond}
		v, err := o.get(t, p, "k")
		t.Logf("rueidisaside TTL 200 ms, load 300 ms: %q %v", v, err)
		p.Close()
	}
	// panics
	for _, c := range All[[]byte]() {
		conf := config(s, "panic "+c.Name)
		p, _ := c.Open(conf)
		var recovered atomic.Int64
		var errs sync.Map
		var wg sync.WaitGroup
		began := time.Now()
		for range 2 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						recovered.Add(1)
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := p.Get(ctx, "k", func(context.Context) ([]byte, error) { time.Sleep(20 * time.Millisecond); panic("boom") })
				errs.Store(fmt.Sprintf("%.60v", err), true)
			})
		}
		wg.Wait()
		took := time.Since(began)
		var es []any
		errs.Range(func(k, _ any) bool { es = append(es, k); return true })
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := p.Get(ctx, "k", (&origin{value: "v"}).load)
		cancel()
		t.Logf("panic: %-18s 2 callers: %d panics, errors %v, after %v; next Get %v %v", c.Name, recovered.Load(), es, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), err)
		p.Close()
	}
}
