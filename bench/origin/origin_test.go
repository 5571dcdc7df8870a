package origin

import (
	"bytes"
	"context"
	"errors"
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
	o.Change(Settings{})
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
	if _, err := client.Load(t.Context(), 1); err == nil || err.Error() != ErrFailed.Error() {
		t.Errorf("got %v, want %v", err, ErrFailed)
	}
	if o.Counts().Loads != 1 {
		t.Error("a load that fails counts")
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
	o.GiveUp()
}

func TestADatabaseThatDoesNotAnswer(t *testing.T) {
	if _, err := Open(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1", ""); err == nil {
		t.Error("opened")
	}
}
