package middleware

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Many pages, with variants, that live for a second (souin#828: an index without an expiry): all of it goes by itself.
func TestNothingIsLeft(t *testing.T) {
	urls := 4000
	if testing.Short() {
		urls = 1000
	}
	rdb := redistest.Real(t).Client(t, func(o *redis.Options) { o.PoolSize = 32 })
	f := unserved(t, rdb, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("kind") {
		case "0":
			w.Header().Set("Cache-Control", "max-age=1")
		case "1":
			w.Header().Set("Cache-Control", "private")
		case "2":
			w.WriteHeader(500)
		default:
			w.Header().Set("Cache-Control", "max-age=1")
			w.Header().Set("Vary", "Accept-Language")
			w.Header().Set("Surrogate-Key", "all "+r.Header.Get("Accept-Language"))
		}
		_, _ = fmt.Fprint(w, "a page")
	}, func(o *Options) { o.HitForMiss, o.Tags = time.Second, true })
	const clients = 32
	wrong := crowd(clients, func(c int) (wrong int) {
		for i := c; i < urls; i += clients {
			r := request(t, fmt.Sprintf("GET /%d?kind=%d HTTP/1.1\r\nHost: a\r\nAccept-Language: %d\r\n\r\n", i, min(i%64, 3), i%7))
			if got := record(f.handler, r); got.body != "a page" {
				wrong++
			}
		}
		return wrong
	})
	for _, n := range wrong {
		if n > 0 {
			t.Errorf("%d wrong answers", n)
		}
	}
	keys := everyKey(t, rdb)
	if len(keys) < 100 {
		t.Errorf("only %d keys are there", len(keys))
	}
	for key, ttl := range keys {
		if ttl == -1 {
			t.Errorf("%s has no TTL", key)
		}
	}
	// The 8 tags and their clock live on: there are as many as an application names.
	redistest.Eventually(t, soon, "pages, indexes, marks and counters expire", func() bool {
		n, err := rdb.DBSize(t.Context()).Result()
		return err == nil && n <= 9
	})
	for key := range everyKey(t, rdb) {
		if !strings.HasPrefix(key, "adversity:tag") {
			t.Errorf("%s is left", key)
		}
	}
}

// everyKey are all keys with their TTL; -1 is none.
func everyKey(t testing.TB, rdb *redis.Client) map[string]time.Duration {
	t.Helper()
	keys := map[string]time.Duration{}
	all, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	pipe := rdb.Pipeline()
	cmds := map[string]*redis.DurationCmd{}
	for _, key := range all {
		cmds[key] = pipe.PTTL(t.Context(), key)
	}
	if _, err := pipe.Exec(t.Context()); err != nil && len(all) > 0 {
		t.Fatal(err)
	}
	for key, cmd := range cmds {
		if cmd.Val() != -2 { // it has expired meanwhile
			keys[key] = cmd.Val()
		}
	}
	return keys
}

// Who sends another Accept-Language each time does not fill Redis: so many variants are stored, and the others answered.
func TestVariantsAreBounded(t *testing.T) {
	const bound = 10
	rdb := redistest.Real(t).Client(t)
	var m meter
	f := unserved(t, rdb, func(w http.ResponseWriter, r *http.Request) {
		defer m.run()()
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Vary", "Accept-Language")
		_, _ = fmt.Fprint(w, "in ", r.Header.Get("Accept-Language"))
	}, func(o *Options) { o.MaxVariants = bound })
	ask := func(i int) reply {
		return record(f.handler, request(t, fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nAccept-Language: %d\r\n\r\n", i)))
	}
	for i := range 200 {
		ask(i).want(t, 200, fmt.Sprint("in ", i))
	}
	for i, r := range crowd(200, func(i int) reply { return ask(1000 + i) }) {
		r.want(t, 200, fmt.Sprint("in ", 1000+i))
	}
	if n := len(everyKey(t, rdb)); n > bound+2 { // and the index, and the counter
		t.Errorf("%d keys for %d variants: %v", n, bound, everyKey(t, rdb))
	}
	before := m.runs.Load()
	ask(0).want(t, 200, "in 0")
	if m.runs.Load() != before {
		t.Error("the first variant is not there any more")
	}
}
