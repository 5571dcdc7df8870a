package origin

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*Origin, *Client) {
	t.Helper()
	o, err := Open(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client, err := Dial(o.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), o.Close()); err != nil {
			t.Error(err)
		}
	})
	return o, client
}

func TestItem(t *testing.T) {
	for _, size := range []int{0, 16, 100} {
		want := Item{ID: 7, Version: 1 << 40}
		b := want.Encode(size)
		if got, err := Decode(b); err != nil || got != want || len(b) != max(size, 16) {
			t.Errorf("%d bytes: got %v, %v in %d bytes", size, got, err, len(b))
		}
	}
	if _, err := Decode(make([]byte, 15)); err == nil {
		t.Error("15 bytes are no item")
	}
	if bytes.Equal(Item{ID: 1}.Encode(100)[16:], Item{ID: 2}.Encode(100)[16:]) {
		t.Error("two items have the same filling")
	}
}

func TestLoadsAreCounted(t *testing.T) {
	o, client := open(t)
	o.Reset(Settings{})
	before := time.Now()
	var loads sync.WaitGroup
	for id := range 50 {
		loads.Go(func() {
			if item, err := client.Load(t.Context(), id); err != nil || item != (Item{ID: id, Version: 1}) {
				t.Errorf("load %d: %v, %v", id, item, err)
			}
		})
	}
	loads.Wait()
	counts := o.Counts()
	if counts.Loads != 50 || len(counts.Begun) != 50 || counts.Running != 0 || counts.Peak < 1 || counts.Peak > 50 {
		t.Errorf("counted %d loads, %d beginnings, %d running, at most %d at once", counts.Loads, len(counts.Begun), counts.Running, counts.Peak)
	}
	ids := map[int]bool{}
	for _, begun := range counts.Begun {
		ids[begun.ID] = true
		if begun.At.Before(before) || begun.At.After(time.Now()) {
			t.Errorf("a load began at %v", begun.At)
		}
	}
	if len(ids) != 50 {
		t.Errorf("%d items were loaded, want 50", len(ids))
	}
	o.Reset(Settings{})
	if counts := o.Counts(); counts.Loads != 0 || len(counts.Begun) != 0 || counts.Peak != 0 {
		t.Errorf("after Reset: %v", counts)
	}
}

// A load returns what was there when it began.
func TestALoadReadsAtItsBeginning(t *testing.T) {
	o, client := open(t)
	release := make(chan struct{})
	o.Reset(Settings{Load: 300 * time.Millisecond})
	got := make(chan Item)
	go func() {
		<-release
		item, err := client.Load(t.Context(), 3)
		if err != nil {
			t.Error(err)
		}
		got <- item
	}()
	close(release)
	for o.Counts().Running == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // the row is read by now, or what follows shows it
	written, err := client.Write(t.Context(), 3)
	if err != nil || written != (Item{ID: 3, Version: 2}) {
		t.Fatalf("wrote %v, %v", written, err)
	}
	if item := <-got; item.Version != 1 {
		t.Errorf("a load that began before the write returned version %d", item.Version)
	}
	o.Change(0, false)
	if item, err := client.Load(t.Context(), 3); err != nil || item.Version != 2 {
		t.Errorf("a later load returned %v, %v", item, err)
	}
	if item, err := client.Load(t.Context(), Rows+3); err != nil || item != (Item{ID: Rows + 3, Version: 2}) {
		t.Errorf("an id beyond the rows returned %v, %v", item, err)
	}
}

func TestPlacesAreKept(t *testing.T) {
	o, client := open(t)
	o.Reset(Settings{Load: 30 * time.Millisecond, Places: 2})
	began := time.Now()
	var loads sync.WaitGroup
	for id := range 6 {
		loads.Go(func() {
			if _, err := client.Load(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	loads.Wait()
	if took := time.Since(began); took < 90*time.Millisecond {
		t.Errorf("six loads of 30 ms in two places took %v", took)
	}
}

func TestLoadsFailWhenToldTo(t *testing.T) {
	o, client := open(t)
	o.Reset(Settings{Fail: true})
	if _, err := client.Load(t.Context(), 1); err == nil || err.Error() != errFailed.Error() {
		t.Errorf("got %v, want %v", err, errFailed)
	}
	if o.Counts().Loads != 1 {
		t.Error("a load that fails counts")
	}
}

// What the measurement before has left in the queue does not hold up the next.
func TestResetDropsWhatQueues(t *testing.T) {
	o, client := open(t)
	o.Reset(Settings{Load: time.Hour, Places: 1})
	errs := make(chan error)
	for id := range 3 {
		go func() {
			_, err := client.Load(t.Context(), id)
			errs <- err
		}()
	}
	for o.Counts().Running < 3 {
		time.Sleep(time.Millisecond)
	}
	o.Reset(Settings{Places: 1})
	for range 3 {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "dropped") {
			t.Errorf("a load that was dropped returned %v", err)
		}
	}
	if _, err := client.Load(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if counts := o.Counts(); counts.Loads != 1 || counts.Running != 0 {
		t.Errorf("counted %d loads, %d running, want 1 and 0", counts.Loads, counts.Running)
	}
}

// A caller that leaves does not end the query.
func TestACallerMayLeave(t *testing.T) {
	o, client := open(t)
	o.Reset(Settings{Load: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := client.Load(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if counts := o.Counts(); counts.Running != 1 {
		t.Errorf("%d loads run, want 1", counts.Running)
	}
	o.Reset(Settings{})
}

func TestADatabaseThatDoesNotAnswer(t *testing.T) {
	if _, err := Open(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1", ""); err == nil {
		t.Error("opened")
	}
}
