package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

var tagged = Route{Tags: true}

func TestPurgeTagRemovesWhatCarriesIt(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		for _, field := range []string{"Surrogate-Key: red  blue", "Cache-Tag: red, blue"} {
			name, value, _ := strings.Cut(field, ": ")
			d := &versioned{fields: map[string]string{name: value}}
			here, there := newSite(t, s.Client(t), tagged, d.ServeHTTP), newSite(t, s.Client(t), tagged, d.ServeHTTP)
			paths := []string{"/1" + name, "/2" + name}
			for _, path := range paths {
				here.wantBody("v0 for ", path)
				there.wantBody("v0 for ", path)
			}
			here.wantRuns(field, 2)
			d.version.Store(1)
			for _, c := range []struct {
				tag  string
				want string
			}{{"green", "v0 for "}, {"Red", "v0 for "}, {"blue", "v1 for "}} {
				if err := there.mw.PurgeTag(t.Context(), c.tag); err != nil {
					t.Fatal(err)
				}
				for _, path := range paths {
					here.wantBody(c.want, path)
					there.wantBody(c.want, path)
				}
			}
			here.wantRuns(field+" after the purge", 2)
			there.wantRuns(field+" elsewhere", 0)
		}
	})
}

func TestExpireTagServesStaleOrValidates(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		d := &versioned{fields: map[string]string{"Cache-Tag": "red"}}
		site := newSite(t, s.Client(t), Route{Tags: true, StaleWhileRevalidate: time.Hour}, d.ServeHTTP)
		strict, err := site.mw.With(Route{StaleWhileRevalidate: -1})
		if err != nil {
			t.Fatal(err)
		}
		site.wantBody("v0 for ", "/lax")
		lax := site.Handler
		site.Handler = strict.Handler(http.HandlerFunc(d.ServeHTTP))
		site.wantBody("v0 for ", "/strict")
		d.version.Store(1)
		if err := site.mw.ExpireTag(t.Context(), "red"); err != nil {
			t.Fatal(err)
		}
		site.wantBody("v1 for ", "/strict")
		site.Handler = lax
		site.wantBody("v0 for ", "/lax")
		redistest.Eventually(t, 10*time.Second, "the renewed page", func() bool {
			return site.do(http.MethodGet, "/lax").Body.String() == "v1 for "
		})
		site.wantRuns("with the renewal", 2)
	})
}

func TestAPurgeOfATagBeatsARunInFlight(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		d := &versioned{fields: map[string]string{"Cache-Tag": "red"}}
		here, there := newSite(t, s.Client(t), tagged, d.ServeHTTP), newSite(t, s.Client(t), tagged, d.ServeHTTP)
		for _, path := range []string{"/first", "/second"} { // the first run makes the tag
			was := d.version.Load()
			d.during = sync.OnceFunc(func() {
				d.version.Add(1)
				if err := there.mw.PurgeTag(t.Context(), "red"); err != nil {
					t.Error(err)
				}
			})
			here.wantBody(fmt.Sprintf("v%d for ", was), path)
			there.wantBody(fmt.Sprintf("v%d for ", was+1), path)
			here.wantBody(fmt.Sprintf("v%d for ", was+1), path)
		}
	})
}

// A tag that Redis has evicted may have been purged: what carries it is not trusted.
func TestATagThatWasEvictedCountsAsPurged(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		d := &versioned{fields: map[string]string{"Cache-Tag": "red"}}
		rdb := s.Client(t)
		site := newSite(t, rdb, tagged, d.ServeHTTP)
		site.wantBody("v0 for ", "/a")
		site.wantBody("v0 for ", "/b")
		d.version.Store(1)
		if err := site.mw.PurgeTag(t.Context(), "red"); err != nil {
			t.Fatal(err)
		}
		if n, err := rdb.Del(t.Context(), site.mw.tags.name("red")).Result(); n != 1 || err != nil {
			t.Fatalf("deleted %d, %v", n, err)
		}
		site.wantBody("v1 for ", "/a") // which makes the tag again
		site.wantBody("v1 for ", "/b")
		site.wantRuns("all", 4)
		site.wantBody("v1 for ", "/a")
		site.wantBody("v1 for ", "/b")
		site.wantRuns("hits", 0)
	})
}

func TestTagsOutliveTheirPagesAndExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		d := &versioned{fields: map[string]string{"Cache-Tag": "red"}}
		site := newSite(t, rdb, tagged, d.ServeHTTP)
		site.do(http.MethodGet, "/p")
		site.do(http.MethodPost, "/p")
		for _, purge := range []func() error{
			func() error { return nil },
			func() error { return site.mw.ExpireTag(t.Context(), "red") },
			func() error { return site.mw.PurgeTag(t.Context(), "red") },
		} {
			if err := purge(); err != nil {
				t.Fatal(err)
			}
			if ttl := rdb.PTTL(t.Context(), site.mw.tags.name("red")).Val(); ttl < time.Hour-time.Second {
				t.Errorf("the tag is kept for %v, its page for an hour", ttl)
			}
		}
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 25*time.Hour {
				t.Errorf("%s is kept for %v", key, ttl)
			}
		}
	})
}

// What purged a page must not be forgotten before the page is: also when the tag was first on one that lives shorter, and
// when the run took so long that a purge may have been forgotten meanwhile.
func TestTagsAreKeptForTheLongestOfTheirPages(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		site := newSite(t, rdb, tagged, nil)
		tags, red := site.mw.tags, []string{"red"}
		epoch, err := tags.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, life := range []time.Duration{time.Minute, 20 * time.Hour, time.Hour} {
			if !tags.keep(t.Context(), red, epoch, life) {
				t.Errorf("not kept for %v", life)
			}
		}
		if ttl := rdb.PTTL(t.Context(), tags.name("red")).Val(); ttl < 20*time.Hour-time.Second {
			t.Errorf("the tag is kept for %v", ttl)
		}
		if tags.keep(t.Context(), red, epoch-tags.window.Microseconds()-1e6, time.Hour) {
			t.Error("a page is stored whose run took longer than a purge is remembered")
		}
	})
}

// RFC 9875: groups are of one origin, and a field that is no list of strings is ignored.
func TestCacheGroups(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		d := &versioned{fields: map[string]string{"Cache-Groups": `"a, b";x=1, "c\"d"`}}
		invalidate := ""
		site := newSite(t, s.Client(t), tagged, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.Header().Set("Cache-Group-Invalidation", invalidate)
				return
			}
			d.ServeHTTP(w, r)
		})
		site.wantBody("v0 for ", "/p")
		for _, c := range []struct {
			field string
			want  string
		}{
			{`"a"`, "v0 for "}, {`a, b`, "v0 for "}, {`"a, b", c`, "v0 for "}, {`"a, b`, "v0 for "}, {`"a, b"x`, "v0 for "},
			{`"c\"d"`, "v1 for "},
		} {
			d.version.Store(1)
			invalidate = c.field
			site.do(http.MethodPost, "/other")
			site.wantBody(c.want, "/p")
		}
		if err := site.mw.PurgeTag(t.Context(), "a, b"); err != nil { // a tag is no group
			t.Fatal(err)
		}
		d.version.Store(2)
		site.wantBody("v1 for ", "/p")
	})
}

func TestTagsThatCannotBeAskedForAreNotTrusted(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb, faults := s.Client(t), redistest.NewFaults(t)
		rdb.AddHook(faults)
		ofTags := func(command []string) bool { return strings.Contains(strings.Join(command, " "), ":tag") }
		d := &versioned{fields: map[string]string{"Cache-Tag": "red"}}
		site := newSite(t, rdb, tagged, d.ServeHTTP)
		site.wantBody("v0 for ", "/p")
		d.version.Store(1)
		faults.Refuse(1, func(command []string) bool { return command[0] == "mget" && ofTags(command) }, errBroken)
		site.wantBody("v1 for ", "/p")
		site.wantRuns("with the page that could not be trusted", 2)
		// A run whose beginning cannot be numbered, or whose tags cannot be kept, is not stored.
		for n := range 2 {
			was := d.version.Add(1)
			path := fmt.Sprintf("/%d", n)
			first := true
			faults.Refuse(1, func(command []string) bool {
				skip := n == 1 && first && ofTags(command)
				first = first && !skip
				return !skip && ofTags(command)
			}, errBroken)
			site.wantBody(fmt.Sprintf("v%d for ", was), path)
			d.version.Add(1)
			site.wantBody(fmt.Sprintf("v%d for ", was+1), path)
			site.wantRuns(path, 2)
		}
		faults.Refuse(1, ofTags, errBroken)
		if err := site.mw.PurgeTag(t.Context(), "red"); !errors.Is(err, stockade.ErrRedis) || !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	})
}

var errBroken = errors.New("broken")
