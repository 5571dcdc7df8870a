package stockade

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// What is remembered while Redis does not answer is not served once it does.
func TestNoRememberedValueAfterRecovery(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		a, b := open[string](t, p.Client(t)), open[string](t, s.Client(t))
		var source atomic.Value
		load := func(context.Context) (string, error) { return source.Load().(string), nil }
		for round := range 20 {
			old, newer := fmt.Sprint("old ", round), fmt.Sprint("new ", round)
			source.Store(old)
			begin()
			redistest.Eventually(t, time.Second, "the breaker opens", func() bool {
				v, err := a.Get(t.Context(), "k", load)
				if err != nil {
					t.Fatal(err)
				}
				return v == old && a.view.nodes.single.isOpen.Load()
			})
			end()
			redistest.Eventually(t, time.Second, "the breaker closes", func() bool {
				if _, err := a.Get(t.Context(), "k", load); err != nil {
					t.Fatal(err)
				}
				return !a.view.nodes.single.isOpen.Load()
			})
			source.Store(newer)
			if err := b.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if v, err := a.Get(t.Context(), "k", load); v != newer || err != nil {
				t.Errorf("got %q, %v, want %q", v, err, newer)
			}
			time.Sleep(7 * time.Second) // until the client has given up what it sent in the outage
		}
	})
}

// Nor is it served in the next outage.
func TestNoRememberedValueInTheNextOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		a, b := open[string](t, p.Client(t)), open[string](t, s.Client(t))
		if err := a.Set(t.Context(), "other", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		begin()
		remembered := time.Now()
		if v, err := a.Get(t.Context(), "k", returns("old").Load); v != "old" || err != nil {
			t.Fatalf("got %q, %v", v, err)
		}
		end()
		redistest.Eventually(t, time.Second, "the breaker closes", func() bool { _, err := a.Lookup(t.Context(), "other"); return err == nil })
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		begin()
		if v, err := a.Get(t.Context(), "k", returns("new").Load); v != "new" || err != nil {
			t.Errorf("%v later: got %q, %v", time.Since(remembered), v, err)
		}
		end()
	})
}

// A load without a lease saw the source before an invalidation that was acknowledged while Redis answered for a moment.
// Who came after that may not have it, though Redis is down again when the load ends.
func TestALoadFromBeforeARecovery(t *testing.T) {
	eachOutage(t, func(t *testing.T, s *redistest.FakeServer, p *redistest.Proxy, begin, end func()) {
		a, b := open[string](t, p.Client(t)), open[string](t, s.Client(t))
		if err := a.Set(t.Context(), "other", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		down := func() bool {
			_, err := a.Lookup(t.Context(), "other")
			return err != nil && a.view.nodes.single.isOpen.Load()
		}
		begin()
		redistest.Eventually(t, time.Second, "the breaker opens", down)
		finish, early := make(chan struct{}), make(chan string, 1)
		began := make(chan struct{})
		go func() {
			v, _ := a.Get(t.Context(), "k", func(context.Context) (string, error) { close(began); <-finish; return "old", nil })
			early <- v
		}()
		<-began
		end()
		redistest.Eventually(t, time.Second, "the breaker closes", func() bool { _, err := a.Lookup(t.Context(), "other"); return err == nil })
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second)
		begin()
		redistest.Eventually(t, time.Second, "the breaker opens again", down)
		late := make(chan string, 1)
		go func() {
			v, _ := a.Get(t.Context(), "k", returns("new").Load)
			late <- v
		}()
		time.Sleep(testTimeout)
		close(finish)
		want(t, "who came first got", <-early, "old")
		want(t, "who came after the invalidation got", <-late, "new")
		if v, err := a.Get(t.Context(), "k", returns("new").Load); v != "new" || err != nil {
			t.Errorf("who came after the load got %q, %v", v, err)
		}
		end()
	})
}
