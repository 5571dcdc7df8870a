package stockade

import (
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I1: what an invalidation has overtaken is not stored.
func TestNoStaleSetAfterInvalidate(t *testing.T) { holds(t, staleSetAfterInvalidate) }

func staleSetAfterInvalidate(t *testing.T, s redistest.Server) error {
	a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	return expect("after the invalidation", getNow(b, "k", "new"), "new")
}

// I1: what a Set has overtaken is not stored.
func TestNoStaleSetAfterSet(t *testing.T) { holds(t, staleSetAfterSet) }

func staleSetAfterSet(t *testing.T, s redistest.Server) error {
	a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	p := get(a, "k")
	<-p.began
	if err := b.Set(t.Context(), "k", "new"); err != nil {
		return err
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	return expect("after the Set", getNow(b, "k", "newer"), "new")
}

// I1: a server that is full refuses leases and acknowledges invalidations, so nothing may be remembered meanwhile.
func TestNothingIsRememberedWhileWritesAreAcknowledged(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		a, b := open[string](t, rdb), open[string](t, s.Client(t))
		for _, value := range []string{"old", "new"} {
			faults.Refuse(1, runs("acquire"), refusal("OOM command not allowed when used memory > 'maxmemory'."))
			if err := expect("locally", getNow(a, "k", value), value); err != nil {
				return err
			}
			if err := b.Invalidate(t.Context(), "k"); err != nil {
				return err
			}
		}
		return nil
	})
}
