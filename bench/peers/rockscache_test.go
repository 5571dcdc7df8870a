package peers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A caller that leaves does not end the refresh that it started.
func TestRockscacheRefreshesWithoutItsCaller(t *testing.T) {
	p, err := Open[[]byte]("rockscache", config(redistest.Fake(t), "p"))
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, p)
	o := &origin{value: "old", takes: 20 * time.Millisecond}
	o.want(t, p, "k", "old", 1)
	if err := p.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	o.value = "new"
	ctx, cancel := context.WithCancel(t.Context())
	value, err := p.Get(ctx, "k", o.load)
	cancel()
	if err != nil || string(value) != "old" {
		t.Errorf("right after Invalidate: %q, %v", value, err)
	}
	redistest.Eventually(t, time.Second, "the refresh is stored", func() bool {
		value, err := o.get(t, p, "k")
		return err == nil && value == "new"
	})
	o.want(t, p, "k", "new", 2)
}

func TestLastingEndsByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		cancel()
		if err := (lasting{ctx}).Err(); err != nil {
			t.Errorf("cancelled: %v", err)
		}
		time.Sleep(time.Second)
		if err := (lasting{ctx}).Err(); err != context.DeadlineExceeded {
			t.Errorf("at its deadline: %v", err)
		}
	})
}
