package origin

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestGiveUp(t *testing.T) {
	defer goleak.VerifyNone(t)
	o, err := Open(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.Reset(Settings{Load: time.Minute, Places: 1})
	failed := make(chan error)
	for range 2 { // one runs, one queues
		go func() {
			_, err := o.load(t.Context(), 1)
			failed <- err
		}()
	}
	for began := time.Now(); o.Counts().Running < 2 && time.Since(began) < 5*time.Second; time.Sleep(time.Millisecond) {
	}
	o.GiveUp()
	for range 2 {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "given up") {
			t.Errorf("got %v", err)
		}
	}
	before := o.Reset(Settings{})
	if before.Loads != 2 || before.Running != 0 || before.Peak != 2 {
		t.Errorf("got %+v, want 2 loads, 2 at once, and none now", before)
	}
	if after := o.Counts(); after.Loads != 0 || after.Peak != 0 {
		t.Errorf("got %+v after a reset", after)
	}
	if item, err := o.load(t.Context(), 1); err != nil || item.ID != 1 {
		t.Errorf("got %v, %v: later loads go on", item, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
