package stockade

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

type brittle struct{ S string }

func (b brittle) Clone() brittle {
	if b.S == "broken" {
		panic("Clone")
	}
	return b
}

// A Clone that panics for a loader is the failure of that load: no caller is there to see it, and the process goes on.
func TestAClonePanicsForALoader(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		var told error
		c := open[brittle](t, s.Client(t), func(o *Options) {
			o.TTL, o.KeepFor = time.Minute, time.Hour
			o.Observer.Load = func(e LoadEvent) { told = e.Err }
		})
		set(t, c, "k", brittle{"broken"})
		time.Sleep(2 * time.Minute)
		var panicked *PanicError
		load := func(context.Context, *Entry[brittle]) (Entry[brittle], error) { return Entry[brittle]{}, nil }
		if _, err := c.Fetch(t.Context(), "k", load); !errors.As(err, &panicked) || panicked.Value != "Clone" {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if !errors.As(told, &panicked) {
			t.Errorf("told %v", told)
		}
	})
}
