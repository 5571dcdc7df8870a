package middleware

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A router may keep in the context of a request what it uses for another as soon as the first is answered. This one tells
// when that is used too late.
type pooled struct{ free atomic.Bool }

type pooledKey struct{}

func pooling(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &pooled{}
		defer p.free.Store(true)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), pooledKey{}, p)))
	})
}

// used reports whether a request may be handled still.
func used(t *testing.T, r *http.Request) {
	if p, ok := r.Context().Value(pooledKey{}).(*pooled); !ok || p.free.Load() {
		t.Errorf("%s: the handler runs in the context of a request that has been answered (%v)", r.URL, ok)
	}
}

func TestNoRunOutlivesTheContextOfItsRequest(t *testing.T) {
	s := redistest.Real(t)
	mw, err := New(s.Client(t), Options{Prefix: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mw.Close() })
	var runs atomic.Int64
	gate := make(chan struct{}, 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := runs.Add(1)
		used(t, r)
		<-gate
		used(t, r)
		w.Header().Set("Cache-Control", "max-age=3600, stale-while-revalidate=3600")
		fmt.Fprint(w, r.URL.Path, " ", n)
	})
	srv := httptest.NewServer(pooling(http.StripPrefix("/sub", mw.Handler(handler))))
	t.Cleanup(srv.Close)
	get := func(ctx context.Context) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/sub/p", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := srv.Client().Do(r)
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}

	// The client of the first run leaves.
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan string, 1)
	go func() { left <- get(ctx) }()
	redistest.Eventually(t, 10*time.Second, "the run begins", func() bool { return runs.Load() == 1 })
	leave()
	<-left
	gate <- struct{}{}
	redistest.Eventually(t, 10*time.Second, "the page is there", func() bool { return get(t.Context()) == "/p 1" })

	// A page is renewed in the background, through all that stands before the middleware.
	if err := mw.Expire(t.Context(), srv.URL+"/sub/p"); err != nil {
		t.Fatal(err)
	}
	if body := get(t.Context()); body != "/p 1" {
		t.Errorf("stale: got %q", body)
	}
	redistest.Eventually(t, 10*time.Second, "the refresh begins", func() bool { return runs.Load() == 2 })
	gate <- struct{}{}
	redistest.Eventually(t, 10*time.Second, "the page is renewed", func() bool { return get(t.Context()) == "/p 2" })
}

// What stands before the middleware may answer the request of a refresh itself: then nothing is renewed, and nothing hangs.
func TestARefreshThatDoesNotGetThrough(t *testing.T) {
	s := redistest.Real(t)
	mw, err := New(s.Client(t), Options{Prefix: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mw.Close() })
	var runs, refused atomic.Int64
	handler := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600, stale-while-revalidate=3600")
		fmt.Fprint(w, runs.Add(1))
	}))
	for name, refuse := range map[string]func(http.ResponseWriter){
		"answers": func(w http.ResponseWriter) { http.Error(w, "no", http.StatusUnauthorized) },
		"panics":  func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		runs.Store(0)
		refused.Store(0)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if run := r.Context().Value(runKey{}); run != nil {
				refused.Add(1)
				refuse(w)
				return
			}
			handler.ServeHTTP(w, r)
		}))
		get := func() string {
			resp, err := srv.Client().Get(srv.URL + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			return strings.TrimSpace(string(body))
		}
		get()
		if err := mw.Expire(t.Context(), srv.URL+"/"+name); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 10*time.Second, "refreshes are tried again", func() bool {
			if body := get(); body != "1" {
				t.Errorf("%s: got %q", name, body)
			}
			return refused.Load() >= 2
		})
		if n := runs.Load(); n != 1 {
			t.Errorf("%s: %d runs", name, n)
		}
		srv.Close()
	}
}
