package middleware

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// souin#192: Vary is honoured, by all its forms, in one run a variant, whoever asks at once and wherever.
func TestEachVariantIsMadeOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		for i, vary := range []string{"X-V", "x-v", "Accept, X-V", " , X-V ,"} {
			path := fmt.Sprintf("/%d", i)
			d := &versioned{fields: map[string]string{"Vary": vary}}
			d.during = func() { time.Sleep(20 * time.Millisecond) }
			handler := func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Accept-Language", r.Header.Get("X-V"))
				d.ServeHTTP(w, r)
			}
			sites := []*site{newSite(t, s.Client(t), Route{}, handler), newSite(t, s.Client(t), Route{}, handler)}
			var wg sync.WaitGroup
			for i := range 80 {
				variant := fmt.Sprint(i % 4)
				wg.Go(func() { sites[i/4%2].wantBody("v0 for "+variant, path, "X-V: "+variant) })
			}
			wg.Wait()
			if runs := sites[0].runs.Load() + sites[1].runs.Load(); runs != 4 {
				t.Errorf("Vary %q: %d runs for 4 variants", vary, runs)
			}
			sites[0].wantBody("v0 for ", path)             // absent
			sites[0].wantBody("v0 for ", path, "X-V: ")    // is not empty
			sites[0].wantBody("v0 for 1", path, "X-V: 1 ") // and spaces around a value mean nothing
			if runs := sites[0].runs.Load() + sites[1].runs.Load(); runs != 6 {
				t.Errorf("Vary %q: %d runs, want one for absent and one for empty", vary, runs)
			}
		}
	})
}

func TestVaryStarIsNotStored(t *testing.T) {
	for _, vary := range []string{"*", "X-V, *", ", *"} {
		bubble(t, Route{}, []http.HandlerFunc{answer(200, "body", "Cache-Control", "max-age=60", "Vary", vary)}, func(t *testing.T, site *site, _ *scripted) {
			site.do("GET", "/")
			site.do("GET", "/")
			site.wantRuns(vary, 2)
		})
	}
}

// A handler may name other fields each time: pages are told apart by all of them.
func TestAVaryThatChanges(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		site := newSite(t, s.Client(t), Route{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Vary", "X-A")
			if r.Header.Get("X-A") == "b" {
				w.Header().Set("Vary", "X-A, X-B")
			}
			fmt.Fprint(w, r.Header.Get("X-A"), r.Header.Get("X-B"))
		})
		for range 3 {
			site.runs.Store(0)
			site.wantBody("a", "/", "X-A: a")
			for _, b := range []string{"1", "2"} {
				site.wantBody("b"+b, "/", "X-A: b", "X-B: "+b)
			}
		}
		site.wantRuns("once it is known what they vary by", 0)
	})
}

// An index is renewed while it is in use: its variants do not vanish with it.
func TestAnIndexStaysWhileItIsUsed(t *testing.T) {
	bubble(t, Route{}, []http.HandlerFunc{
		answer(200, "short", "Cache-Control", "max-age=10", "Vary", "X-V"),
		answer(200, "long", "Cache-Control", "max-age=3600", "Vary", "X-V"),
	}, func(t *testing.T, site *site, _ *scripted) {
		site.wantBody("short", "/", "X-V: 1")
		site.wantBody("long", "/", "X-V: 2")
		for range 100 {
			time.Sleep(15 * time.Second)
			site.wantBody("long", "/", "X-V: 2")
		}
		site.wantRuns("both", 2)
		time.Sleep(25 * time.Second) // unused, it goes
		site.wantBody("long", "/", "X-V: 2")
		site.wantRuns("without the index", 1)
	})
}

func TestKeyAndCookiesTellPagesApart(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		handler := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, r.Header.Get("Tenant"), "|", r.Header.Get("Cookie"))
		}
		site := newSite(t, s.Client(t), Route{
			Cookies: []string{"lang"},
			Key:     func(r *http.Request) (string, bool) { return r.Header.Get("Tenant"), r.Header.Get("Tenant") != "none" },
		}, handler)
		for range 2 {
			site.wantBody("a|lang=de", "/", "Tenant: a", "Cookie: lang=de; session=1")
			site.wantBody("a|lang=de", "/", "Tenant: a", "Cookie: session=2; lang=de")
			site.wantBody("a|lang=en", "/", "Tenant: a", "Cookie: lang=en")
			site.wantBody("a|", "/", "Tenant: a")
			site.wantBody("b|", "/", "Tenant: b", "Cookie: session=1")
		}
		site.wantRuns("one for each tenant and language", 4)
		site.wantBody("none|", "/", "Tenant: none")
		site.wantBody("none|", "/", "Tenant: none")
		site.wantRuns("a request that the key refuses", 2)
	})
}
