package bloom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// Until the new generation is complete the old one answers; then it is gone, for processes that knew it too.
func TestRebuild(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		f := open(t, rdb, func(o *Options) { o.Rate = 1e-6 })
		elsewhere := open(t, s.Client(t), func(o *Options) { o.Keys, o.Rate = 5000, 0.001 }) // uses f's
		build(t, f, "old", "both")
		wantMay(t, elsewhere, true, "old")
		var told []int
		err := f.Rebuild(t.Context(), Keys(func(yield func(string) bool) {
			for _, f := range []*Filter{f, elsewhere} {
				wantMay(t, f, true, "old", "both")
				wantMay(t, f, false, "new", "x")
			}
			if err := elsewhere.Add(t.Context(), "added"); err != nil {
				t.Error(err)
			}
			wantMay(t, f, true, "added")
			for _, key := range append(numbered("k", maxBatch), "new", "both") {
				if !yield(key) {
					return
				}
			}
			wantMay(t, f, false, "k0")
		}), func(n int) { told = append(told, n) })
		if err != nil || !slices.Equal(told, []int{maxBatch, maxBatch + 2}) {
			t.Errorf("told %v, %v", told, err)
		}
		for _, f := range []*Filter{elsewhere, f} {
			wantMay(t, f, true, "new", "both", "added", "k0")
			wantMay(t, f, false, "old", "x")
		}
		wantKeys(t, rdb, 2)
	})
}

// Adds that race rebuilds are never lost: not one key is ruled out from its Add on, in any process.
func TestAddsDuringRebuilds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		var mu sync.Mutex
		var source []string // guarded by mu
		written := make(chan struct{})
		read := func(yield func(string) bool) {
			mu.Lock()
			keys := slices.Clone(source)
			mu.Unlock()
			select {
			case <-written: // what is not read
			case <-time.After(10 * time.Second):
				t.Error("nobody writes")
			}
			for _, key := range keys {
				if !yield(key) {
					return
				}
			}
		}
		rebuilder := open(t, s.Client(t))
		build(t, rebuilder)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for w := range 3 {
			f, other := open(t, s.Client(t)), open(t, s.Client(t))
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					key := fmt.Sprint(w, " ", i)
					mu.Lock()
					source = append(source, key)
					mu.Unlock()
					select {
					case written <- struct{}{}:
					default:
					}
					if err := f.Add(t.Context(), key); err != nil {
						t.Error(err)
						return
					}
					wantMay(t, other, true, key, fmt.Sprint(w, " ", rand.IntN(i+1)))
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		for range 20 {
			if err := rebuilder.Rebuild(t.Context(), Keys(read), nil); err != nil {
				t.Error(err)
			}
		}
		close(stop)
		wg.Wait()
		wantMay(t, open(t, s.Client(t)), true, source...)
		wantKeys(t, s.Client(t), 2)
	})
}

// A Rebuild that fails leaves the current generation, and nothing else.
func TestARebuildThatFails(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		rdb := s.Client(t)
		f := open(t, rdb)
		build(t, f, "a")
		check := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v", what, err)
			}
			wantMay(t, f, true, "a")
			wantMay(t, f, false, "x")
			wantKeys(t, rdb, 2)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		check("cancelled", f.Rebuild(ctx, Keys(func(yield func(string) bool) { yield("x"); cancel(why) }), nil), why)

		check("the source fails", f.Rebuild(t.Context(), func(yield func(string, error) bool) { _ = yield("x", nil) && yield("", why) }, nil), why)

		func() {
			defer func() { check("panic", recover().(error), why) }()
			_ = f.Rebuild(t.Context(), Keys(func(yield func(string) bool) { yield("x"); panic(why) }), nil)
		}()

		err := f.Rebuild(t.Context(), Keys(func(yield func(string) bool) {
			yield("x")
			rdb.Del(t.Context(), f.shardNames(f.state.Load().next)...)
			if err := f.Add(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}), nil)
		check("shard lost", err, ErrShardLost)

		err = f.Rebuild(t.Context(), Keys(func(yield func(string) bool) {
			build(t, open(t, rdb), "a")
			for i := 0; yield("x"); i++ {
				if i > maxBatch {
					t.Error("a superseded rebuild goes on")
					return
				}
			}
		}), nil)
		check("superseded", err, ErrSuperseded)

		err = f.Rebuild(t.Context(), Keys(func(func(string) bool) { rdb.FlushAll(t.Context()); build(t, f, "a") }), nil)
		check("flushed", err, ErrSuperseded)

		faults := redistest.NewFaults(t)
		broken := s.Client(t)
		broken.AddHook(faults)
		g := open(t, broken)
		wantMay(t, g, false, "x")
		for step := range 4 { // look, make, add, look
			skipped := 0
			faults.LoseReply(1, func(command []string) bool { skipped++; return skipped > step && command[0] == "evalsha" })
			check(fmt.Sprint("reply lost ", step), g.Rebuild(t.Context(), Keys(slices.Values([]string{"a"})), nil), io.EOF)
		}
		// The reply of the switch itself: the outcome is unknown, and both are right.
		skipped := 0
		faults.LoseReply(1, func([]string) bool { skipped++; return skipped > 4 })
		check("switch", g.Rebuild(t.Context(), Keys(slices.Values([]string{"a"})), nil), stockade.ErrRedis)
	})
}

// A step of a Rebuild that comes after another Rebuild changes nothing of it.
func TestRebuildsThatMeet(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Server) {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		f, other := open(t, rdb), open(t, s.Client(t))
		build(t, f, "old")
		for how, want := range map[string]error{"make": nil, "need": ErrSuperseded} {
			reached, release := faults.Block(func(command []string) bool { return slices.Contains(command, how) })
			done := make(chan error, 1)
			go func() { done <- f.Rebuild(t.Context(), Keys(slices.Values([]string{"new"})), nil) }()
			<-reached
			build(t, other, "new")
			release()
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", how, err, want)
			}
			for _, f := range []*Filter{f, other} {
				wantMay(t, f, true, "new")
				wantMay(t, f, false, "old", "x")
			}
			wantKeys(t, s.Client(t), 2)
		}
	})
}
