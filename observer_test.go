package stockade

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A function that panics does not end a flight, nor the process. The first such panic is logged, and only that.
func TestAnObserverThatPanics(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	survived = sync.Once{}
	defer func() {
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "panicked") {
			t.Errorf("logged %q", log.String())
		}
	}()
	inBubble(t, func(t *testing.T, s *redistest.FakeServer) {
		observer := Observer{
			Load: func(LoadEvent) { panic("load") }, Wait: func(WaitEvent) { panic("wait") }, Refresh: func(RefreshEvent) { panic("refresh") },
			Redis: func(RedisEvent) { panic("redis") }, Lock: func(LockEvent) { panic("lock") }, Guard: func(GuardEvent) { panic("guard") },
		}
		broken := func(o *Options) {
			o.Observer, o.Guard = observer, brokenGuard{}
			o.TTL, o.StaleFor = time.Second, time.Hour
		}
		c := open[string](t, s.Client(t), broken)
		crash(t, s, c, "a", time.Second)
		load := returns("v")
		for range 3 {
			if v, err := c.Get(t.Context(), "a", load.Load); v != "v" || err != nil {
				t.Fatalf("got %q, %v", v, err)
			}
			time.Sleep(2 * time.Second)
		}
		wantLoads(t, load, 3)
		var o table
		got, err := c.GetMany(t.Context(), []string{"a", "b"}, o.load)
		wantValues(t, map[string]string{"b": got["b"]}, err, "b")
		s.Mini.SetError("LOADING")
		if _, err := c.Get(t.Context(), "c", load.Load); err != nil {
			t.Error(err)
		}
		s.Mini.SetError("")
		k, err := openLocker(t, s, observer).Lock(t.Context(), "x")
		want(t, "error", err, nil)
		want(t, "unlock", k.Unlock(t.Context()), nil)
	})
}

type brokenGuard struct{}

func (brokenGuard) MayExist(context.Context, []string) ([]bool, error) {
	return nil, errors.New("broken")
}

// full is an Observer all of whose functions say to what that they were called.
func full(name string, say func(string)) Observer {
	return Observer{
		Load: func(LoadEvent) { say(name + " load") }, Wait: func(WaitEvent) { say(name + " wait") }, Refresh: func(RefreshEvent) { say(name + " refresh") },
		Redis: func(RedisEvent) { say(name + " redis") }, Lock: func(LockEvent) { say(name + " lock") }, Guard: func(GuardEvent) { say(name + " guard") },
		Trace: func(ctx context.Context, b SpanBegin) (context.Context, func(SpanEnd)) {
			outer, _ := ctx.Value(callerKey{}).(string)
			say(outer + name + " begins " + b.Span.String())
			return context.WithValue(ctx, callerKey{}, outer+name), func(SpanEnd) { say(name + " ends " + b.Span.String()) }
		},
	}
}

// sayAll calls every function of an Observer.
func sayAll(t *testing.T, o Observer) (inside string) {
	o.Load(LoadEvent{})
	o.Wait(WaitEvent{})
	o.Refresh(RefreshEvent{})
	o.Redis(RedisEvent{})
	o.Lock(LockEvent{})
	o.Guard(GuardEvent{})
	for _, span := range []Span{SpanRead, SpanMiss} {
		span := o.begin(t.Context(), SpanBegin{Span: span})
		inside, _ = span.ctx.Value(callerKey{}).(string)
		span.end(SpanEnd{})
	}
	return inside
}

func TestAnd(t *testing.T) {
	const events = "a load b load a wait b wait a refresh b refresh a redis b redis a lock b lock a guard b guard "
	const miss = "a begins miss ab begins miss b ends miss a ends miss"
	for name, c := range map[string]struct {
		a, b bool // trace reads
		want string
	}{
		"misses":    {false, false, events + miss},
		"a's reads": {true, false, events + "a begins read a ends read " + miss},
		"b's reads": {false, true, events + "b begins read b ends read " + miss},
		"reads":     {true, true, events + "a begins read ab begins read b ends read a ends read " + miss},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			say := func(s string) { said = append(said, s) }
			a, b := full("a", say), full("b", say)
			a.TraceReads, b.TraceReads = c.a, c.b
			want(t, "context inside", sayAll(t, a.And(b)), "ab")
			want(t, "said", strings.Join(said, " "), c.want)
			for side, o := range map[string]Observer{"left": a.And(Observer{TraceReads: true}), "right": Observer{TraceReads: true}.And(a)} {
				said = nil
				want(t, side, sayAll(t, o), "a")
				want(t, side, strings.Contains(strings.Join(said, " "), "read"), c.a)
			}
		})
	}
}

// What is nil in both stays nil, so that nothing is called.
func TestAndOfNothing(t *testing.T) {
	v := reflect.ValueOf(Observer{TraceReads: true}.And(Observer{TraceReads: true}))
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			t.Errorf("%s is set", v.Type().Field(i).Name)
		}
	}
}

// And forgets no function of an Observer.
func TestAndTellsAll(t *testing.T) {
	v := reflect.ValueOf(full("a", func(string) {}).And(Observer{}))
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Func && v.Field(i).IsZero() {
			t.Errorf("%s is lost", v.Type().Field(i).Name)
		}
	}
}

// One that panics does not keep the other from hearing.
func TestAndOfOneThatPanics(t *testing.T) {
	var said []string
	good, bad := full("good", func(s string) { said = append(said, s) }), full("bad", func(string) { panic("bad") })
	want(t, "context inside", sayAll(t, bad.And(good)), "good")
	first := len(said)
	want(t, "context inside", sayAll(t, good.And(bad)), "good")
	want(t, "said the second time", len(said)-first, first)
	want(t, "said", first, 8)
}
