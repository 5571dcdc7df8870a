package redistest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var errInjected = errors.New("injected")

func TestFaultsCount(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		rdb, f := s.Client(t), NewFaults(t)
		rdb.AddHook(f)
		set(t, rdb, "k", "v")
		_, _ = rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Get(t.Context(), "k")
			p.Get(t.Context(), "k")
			p.Eval(t.Context(), "return 1", nil)
			return nil
		})
		if got := [...]int{f.Count("get"), f.Count("set", "eval"), f.Count("evalsha")}; got != [...]int{2, 2, 0} {
			t.Errorf("counted %v", got)
		}
		if n := f.Count(); n != 4 {
			t.Errorf("counted %d commands, want 4", n)
		}
	})
}

func TestRefuseDoesNotSend(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		rdb, f := s.Client(t), NewFaults(t)
		rdb.AddHook(f)
		f.Refuse(2, Named("incr"), errInjected)
		if err := rdb.Incr(t.Context(), "n").Err(); !errors.Is(err, errInjected) {
			t.Errorf("got %v, want the injected error", err)
		}
		cmds, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Get(t.Context(), "n")
			p.Incr(t.Context(), "n")
			return nil
		})
		if !errors.Is(err, errInjected) || !errors.Is(cmds[0].Err(), errInjected) {
			t.Errorf("pipeline got %v, %v, want the injected error", err, cmds[0].Err())
		}
		if n := rdb.Incr(t.Context(), "n").Val(); n != 1 {
			t.Errorf("n = %d, want 1", n)
		}
	})
}

func TestLoseReplyExecutesOnce(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		rdb, f := s.Client(t), NewFaults(t)
		rdb.AddHook(f)
		f.LoseReply(2, Named("incr"))
		if err := rdb.Incr(t.Context(), "n").Err(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
		cmds, _ := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Incr(t.Context(), "n"); return nil })
		if err := cmds[0].Err(); !errors.Is(err, io.EOF) {
			t.Errorf("pipeline got %v, want EOF", err)
		}
		if n := rdb.Incr(t.Context(), "n").Val(); n != 3 {
			t.Errorf("n = %d, want 3", n)
		}
	})
}

func TestDelayAndBlock(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		rdb, f := s.Client(t), NewFaults(t)
		rdb.AddHook(f)
		f.Delay(1, Any, 20*time.Millisecond)
		start := time.Now()
		set(t, rdb, "k", "v")
		if d := time.Since(start); d < 20*time.Millisecond {
			t.Errorf("took %v, want 20ms", d)
		}
		f.Delay(1, Any, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := rdb.Get(ctx, "k").Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}

		reached, release := f.Block(Named("get"))
		done := make(chan error)
		go func() { done <- rdb.Get(t.Context(), "k").Err() }()
		<-reached
		select {
		case err := <-done:
			t.Errorf("answered while blocked: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		release()
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// complaints is a test whose errors are counted instead of reported.
type complaints struct {
	*testing.T
	n       int
	cleanup []func()
}

func (c *complaints) Errorf(string, ...any) { c.n++ }
func (c *complaints) Cleanup(f func())      { c.cleanup = append(c.cleanup, f) }

func TestFaultsThatNothingMetAreReported(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		inner := &complaints{T: t}
		f, p := NewFaults(inner), NewProxy(inner, s)
		f.Refuse(1, Any, errInjected)
		p.DropReplies(1, Any)
		for _, end := range inner.cleanup {
			end()
		}
		if inner.n != 2 {
			t.Errorf("%d complaints, want 2", inner.n)
		}
		f.Clear()
		if left := f.Left(); left != "" {
			t.Errorf("left after Clear: %s", left)
		}
	})
}
