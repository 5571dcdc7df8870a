package stockade

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestRenewReplacesWhatWasSeenByOneLoad(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var caches []*Cache[string]
		for range 3 {
			caches = append(caches, open[string](t, s.Client(t), func(o *Options) { o.TTL = time.Hour }))
		}
		first, second := returns("first"), returns("second")
		replace := func(ctx context.Context, old *Entry[string]) (Entry[string], error) {
			if old == nil || old.Value != "first" {
				t.Errorf("old is %+v", old)
			}
			time.Sleep(20 * time.Millisecond)
			v, err := second.Load(ctx)
			return Entry[string]{Value: v}, err
		}
		if _, err := caches[0].Get(t.Context(), "k", first.Load); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, c := range caches {
			seen, err := c.Lookup(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				wg.Go(func() {
					e, err := c.Renew(t.Context(), "k", seen, replace)
					if err != nil || e.Value != "second" {
						t.Errorf("got %+v, %v", e, err)
					}
				})
			}
		}
		wg.Wait()
		wantLoads(t, second, 1)
		// Who comes late with what has long been replaced loads nothing.
		for _, seen := range []Entry[string]{{token: "of another write"}, {}} {
			e, err := caches[1].Renew(t.Context(), "k", seen, replace)
			if err != nil || e.Value != "second" || e.Source != Hit {
				t.Errorf("got %+v, %v", e, err)
			}
		}
		wantLoads(t, second, 1)
	})
}

func TestRenewIsCheckedAsOtherReadsAre(t *testing.T) {
	s := redistest.Fake(t)
	c := open[string](t, s.Client(t))
	if _, err := c.Renew(t.Context(), "k", Entry[string]{}, nil); err != errNilLoader {
		t.Errorf("without a loader: got %v", err)
	}
}
