package bus

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// diary notes the events of a bus.
type diary struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (d *diary) write(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) events() Events {
	return Events{
		Changed: func(name, origin string) { d.write(origin + " changed " + name) },
		Live: func(live bool) {
			if live {
				d.write("up")
			} else {
				d.write("down")
			}
		},
	}
}

// read returns what was noted since the last read.
func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) reads(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := d.read(); !slices.Equal(got, want) {
		t.Errorf("%s: events %q, want %q", what, got, want)
	}
}

func tells(t *testing.T, rdb redis.UniversalClient) (*Bus, *diary) {
	d := &diary{}
	b := New(rdb, channel, d.events())
	t.Cleanup(b.Close)
	return b, d
}

// Changes are told with who made them, before waiters are woken; wakes and what is no message are not.
func TestChangesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Fake(t).Client(t)
		b, d := tells(t, rdb)
		w := b.Wait("k")
		synctest.Wait()
		d.reads(t, "at first", "up")
		wakes(t, w)
		told := make(chan []string, 1)
		go func() { <-w.C; told <- d.read() }()
		publish(t, rdb, "iorigin-1k")
		if got := <-told; !slices.Equal(got, []string{"origin-1 changed k"}) {
			t.Errorf("when the waiter was woken: %q", got)
		}
		for _, message := range []string{"wk", "w", "", "i", "ishort", "i1234567", "x12345678k", "iorigin-2i{}%", "i\xff\x00345678\xff"} {
			publish(t, rdb, message)
		}
		synctest.Wait()
		d.reads(t, "odd messages", "origin-2 changed i{}%", "\xff\x00345678 changed \xff")
	})
}

// It is told whenever the subscription comes up, and once when it is lost.
func TestLivenessIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := redistest.NewProxy(t, redistest.Fake(t))
		b, d := tells(t, p.Client(t))
		d.reads(t, "before it starts")
		b.Start()
		synctest.Wait()
		d.reads(t, "started", "up")
		p.Refuse(true)
		p.Cut()
		time.Sleep(time.Minute)
		d.reads(t, "cut", "down")
		p.Refuse(false)
		time.Sleep(time.Minute)
		d.reads(t, "back", "up")
		p.Cut() // and back before anybody looks
		time.Sleep(time.Minute)
		d.reads(t, "cut shortly", "down", "up")
		b.Close()
		d.reads(t, "closed", "down")
	})
}

// All shards of a ring have to be heard.
func TestLivenessOfARingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := redistest.NewProxy(t, redistest.Fake(t)), redistest.NewProxy(t, redistest.Fake(t))
		second.Refuse(true)
		b, d := tells(t, redistest.Ring(t, []redistest.Server{first, second}))
		b.Start()
		time.Sleep(time.Minute)
		d.reads(t, "with one of two")
		second.Refuse(false)
		time.Sleep(time.Minute)
		d.reads(t, "with both", "up")
		first.Cut()
		time.Sleep(time.Minute)
		d.reads(t, "one was lost", "down", "up")
		first.Refuse(true)
		first.Cut()
		time.Sleep(time.Minute)
		second.Cut()
		time.Sleep(time.Minute)
		d.reads(t, "one is lost", "down")
		first.Refuse(false) // else its client dials when the bubble ends
		time.Sleep(time.Minute)
		d.reads(t, "it is back", "up")
	})
}
