package tasks

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errClosed = errors.New("closed")

func TestACallIsGivenUpInTimeAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{Closed: errClosed}
		begun, returned := time.Now(), make(chan time.Duration, 1)
		_, err := Within(t.Context(), g, time.Second, func(context.Context) (int, error) {
			time.Sleep(time.Minute)
			returned <- time.Since(begun)
			return 1, nil
		})
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(begun) != time.Second {
			t.Errorf("after %v: got %v", time.Since(begun), err)
		}
		g.Close()
		if d := <-returned; d != time.Minute || time.Since(begun) != time.Minute {
			t.Errorf("the call took %v, Close returned after %v", d, time.Since(begun))
		}
	})
}

func TestACallerMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{Closed: errClosed}
		ctx, leave := context.WithCancelCause(t.Context())
		why := errors.New("why")
		time.AfterFunc(time.Millisecond, func() { leave(why) })
		_, err := Within(ctx, g, time.Second, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return 0, ctx.Err()
		})
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		g.Close()
	})
}

func TestNothingBeginsAfterClose(t *testing.T) {
	g := &Group{Closed: errClosed}
	if r, err := Within(t.Context(), g, time.Second, func(context.Context) (int, error) { return 1, nil }); r != 1 || err != nil {
		t.Errorf("before: got %d, %v", r, err)
	}
	if !g.Begin() {
		t.Error("Begin before Close reports false")
	}
	g.End()
	g.Close()
	if _, err := Within(t.Context(), g, time.Second, func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, errClosed) {
		t.Errorf("after: got %v", err)
	}
	if g.Begin() || g.Run(func() {}) {
		t.Error("something begins after Close")
	}
}
