package stockade

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/stockade-cache/stockade/internal/script"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// source is what a caller gave to load from: one of the two.
type source[T any] struct {
	plain Loader[T]
	entry EntryLoader[T]
}

func (s source[T]) load(ctx context.Context, old *Entry[T]) (Entry[T], error) {
	if s.entry != nil {
		return s.entry(ctx, old)
	}
	v, err := s.plain(ctx)
	return Entry[T]{Value: v}, err
}

// flight is the one load, or wait, of a key in this process. Its fields do not change once it has begun, but for saw.
type flight[T any] struct {
	*core[T]
	key    string
	names  script.Keys
	policy Policy
	load   source[T]
	caller context.Context // of the call that started it: gives its values, and is only asked whether it has ended
	saw    sight[T]        // what is in Redis and cannot be served
	nested bool            // inside another load of this cache, whose permit serves for both
	guard  bool            // the Guard is asked before the load

	start atomic.Uint64   // the number at the start of the load; zero before
	lost  chan struct{}   // closed when the lease is known to be lost
	wakes <-chan struct{} // messages about the key; nil for a refresh

	verdict chan *outcome[T] // of a flight in a batch: receives its outcome, or nil when it goes on alone
}

// outcome is how a flight ended.
type outcome[T any] struct {
	entry Entry[T]
	err   error
	// validAt is the number up to which a caller must have arrived to be given this: nothing that was acknowledged
	// before such a caller arrived is missing from it.
	validAt uint64
	private bool // only for that call: an error of its own context
}

// always is the validAt of an outcome that depends on no data.
const always = math.MaxUint64

// joined is an outcome as one caller gets it.
type joined[T any] struct {
	*outcome[T]
	fits bool // this caller may have it
	mine bool // this caller started the flight
}

// join waits for the key's flight and starts it when there is none.
func (c *core[T]) join(ctx context.Context, key string, policy Policy, load source[T], saw sight[T]) (joined[T], error) {
	number := c.seq.Add(1)
	f, landed, mine := c.filling.claim(key, func() *flight[T] {
		f := c.newFlight(ctx, key, policy, load, saw)
		f.nested, f.guard = loadingIn(ctx).in(c), c.opts.Guard != nil
		return f
	})
	return f.await(ctx, number, landed, mine)
}

func (c *core[T]) newFlight(caller context.Context, key string, policy Policy, load source[T], saw sight[T]) *flight[T] {
	return &flight[T]{
		core: c, key: key, names: c.names(key), policy: policy, load: load, caller: caller, saw: saw, lost: make(chan struct{}),
	}
}

// await waits for a flight, for a caller with its number.
func (f *flight[T]) await(ctx context.Context, number uint64, landed <-chan singleflight.Result, mine bool) (joined[T], error) {
	lost := f.lost
	take := func(r singleflight.Result) (joined[T], error) {
		o := r.Val.(*outcome[T])
		return joined[T]{outcome: o, mine: mine, fits: mine || !o.private && number <= o.validAt}, nil
	}
	for {
		select {
		case r := <-landed:
			return take(r)
		case <-lost:
			// Something newer has happened to the key. Who arrived after the load began starts anew at once. The others
			// may have its result: else nobody would get a value under frequent invalidations.
			if number > f.start.Load() {
				return joined[T]{outcome: &outcome[T]{}}, nil
			}
			lost = nil
		case <-ctx.Done():
			select {
			case r := <-landed: // before
				return take(r)
			default:
				return joined[T]{}, contextError(ctx)
			}
		}
	}
}

// answer is what a caller gets of an outcome. last is the failure that this call met before: one and the same failure
// keeps its cause.
func (c *core[T]) answer(o joined[T], last *LoadError) (Entry[T], error) {
	if o.err != nil {
		if failed := asLoadError(o.err); last != nil && failed != nil && failed.Remote && failed.stamp == last.stamp {
			return Entry[T]{}, last
		}
		return Entry[T]{}, o.err
	}
	e := c.share(o.entry)
	if e.Source == Loaded && !o.mine {
		e.Source = Joined
	}
	return e, nil
}

// share gives one of several callers an entry.
func (c *core[T]) share(e Entry[T]) Entry[T] {
	e.Value = c.own(e.Value)
	return e
}

// own gives one of several callers a value.
func (c *core[T]) own(value T) T {
	if c.format.clone != nil {
		return c.format.clone(value)
	}
	return value
}

// run makes the flight. singleflight needs it to return: nothing here panics, and loaders run apart.
func (f *flight[T]) run() *outcome[T] {
	defer f.filling.remove(f.key, f)
	if !f.work.Begin() {
		return f.failed(ErrClosed)
	}
	defer f.work.End()
	f.stats.flights.Add(1)
	defer f.stats.flights.Add(-1)
	if f.verdict != nil {
		if o := <-f.verdict; o != nil {
			return o
		}
	}
	return f.fill()
}

// failed is the outcome of a flight that got nowhere.
func (f *flight[T]) failed(err error) *outcome[T] { return &outcome[T]{err: err, validAt: always} }

// lose is for a lease that is gone: later callers start a flight of their own.
func (f *flight[T]) lose() {
	f.stats.lostLeases.Add(1)
	f.filling.remove(f.key, f)
	close(f.lost)
}

// fill gets a value into Redis, or out of it: by this process when it is granted the lease, else by the one that holds it.
func (f *flight[T]) fill() *outcome[T] {
	token := newToken()
	waiter := f.bus.Register(f.names.Value) // before the acquire, so that no wake is missed after it
	defer waiter.Stop()
	f.wakes = waiter.C
	wait := waiting[T]{flight: f, waiter: waiter}
	defer wait.tell()
	var queued time.Duration
	for unusable := 0; ; {
		if !f.tryEnter() {
			// While others load, the value that was waited for may be there already.
			if o := f.peek(wait.waited); o != nil {
				return o
			}
			if err := f.enter(&queued); err != nil {
				return f.failed(err)
			}
		}
		sent := f.seq.Add(1)
		a, err := f.acquire(token, wait.stamp)
		var saw sight[T]
		switch {
		case err != nil || a.Status != script.Hit:
		case a.Inline:
			saw = f.judge(a.Value, a.Time/1000)
		default:
			sent, saw, err = f.lookAgain()
		}
		if err != nil {
			return f.loadUnleased(token, err)
		}
		if a.Status == script.Granted {
			return f.loadLeased(lease{token: token, stamp: a.Stamp, time: a.Time, at: time.Now()})
		}
		f.leave()
		switch a.Status {
		case script.Hit:
			if saw.state == fresh || saw.state == stale {
				return f.found(saw, wait.waited, sent)
			}
			// Something that cannot be served, and that was not there when the caller looked.
			if unusable++; unusable > maxUnusable {
				return f.failed(errUnusable)
			}
			f.saw = saw
		case script.Failed:
			o := remoteFailure[T](a, sent)
			wait.err = o.err
			return o
		case script.Busy:
			if wait.err = wait.pause(a); wait.err != nil {
				return f.failed(wait.err)
			}
		}
	}
}

// remoteFailure is the outcome of a flight that met the failure of a load elsewhere, or an earlier one.
func remoteFailure[T any](a script.Acquired, validAt uint64) *outcome[T] {
	return &outcome[T]{err: &LoadError{Remote: true, Err: errors.New(a.Message), stamp: a.Stamp}, validAt: validAt}
}

// maxUnusable is how many different values that cannot be served a flight meets in a row before it gives up.
const maxUnusable = 8

var errUnusable = redisError(errors.New("another program keeps writing values that are no entries of this cache"))

// found is the outcome of a flight that met a value.
func (f *flight[T]) found(saw sight[T], waited bool, validAt uint64) *outcome[T] {
	f.keepLocal(saw.stored, validAt)
	if saw.kind == kindAbsent {
		return &outcome[T]{err: f.notFound, validAt: validAt}
	}
	e := saw.entry()
	if waited {
		e.Source = Remote
	}
	return &outcome[T]{entry: e, validAt: validAt}
}

// acquire asks for the lease. A server that found the request too late has told its time, and is asked once more.
func (f *flight[T]) acquire(token, waited string) (a script.Acquired, err error) {
	for range 2 {
		var n *node
		if n, err = f.nodes.of(f.ctx, f.names.Lease); err != nil {
			return a, err
		}
		a, err = step(f.ctx, n, "acquire", func(ctx context.Context, r script.Runner) (script.Acquired, error) {
			a, err := script.Acquire(ctx, r, f.names, token, f.opts.LeaseTTL, n.clock.after(f.opts.RedisTimeout), f.saw.seen(), waited)
			if err == nil && a.Status == script.Granted && ctx.Err() != nil {
				// Too late: nobody waits for the answer any more.
				_, _ = script.Do(context.WithoutCancel(ctx), r, script.Release(f.names, token, f.channel))
				return a, context.Cause(ctx)
			}
			return a, err
		})
		if err != nil || a.Status != script.TooLate {
			return a, err
		}
		n.clock.correct(a.Time)
	}
	return a, tasks.TimeoutError{After: f.opts.RedisTimeout}
}

// lookAgain reads the key, with the number of that read.
func (f *flight[T]) lookAgain() (number uint64, saw sight[T], err error) {
	number = f.seq.Add(1)
	saw, err = f.look(f.ctx, f.key, false)
	return number, saw, err
}

// peek is for a flight that has waited: it returns the value if that is there.
func (f *flight[T]) peek(waited bool) *outcome[T] {
	if !waited {
		return nil
	}
	number, saw, err := f.lookAgain()
	if err != nil || saw.state != fresh && saw.state != stale || saw.isBy(f.saw.token) {
		return nil
	}
	return f.found(saw, waited, number)
}

func (f *flight[T]) tryEnter() bool { return f.nested || f.permits.TryAcquire(1) }

// enter waits for a permit. queued is what the flight has waited for permits so far.
func (f *flight[T]) enter(queued *time.Duration) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(f.ctx, f.opts.LoadTimeout-*queued, ErrOverloaded)
	defer cancel()
	err := f.permits.Acquire(ctx, 1)
	*queued += time.Since(begun)
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// leave gives the permit back.
func (f *flight[T]) leave() {
	if !f.nested {
		f.permits.Release(1)
	}
}

// loading marks the context of a loader with what it loads.
type loading struct {
	core  any // a *core[T]
	key   string
	keys  map[string]bool // of a batch, which has no key
	outer *loading
	ended atomic.Bool // the context outlives its loader
}

type loadingKey struct{}

func loadingIn(ctx context.Context) *loading {
	l, _ := ctx.Value(loadingKey{}).(*loading)
	return l
}

// has reports whether the key of the core is being loaded around this.
func (l *loading) has(core any, key string) bool {
	for ; l != nil; l = l.outer {
		if l.core == core && (l.keys[key] || l.keys == nil && l.key == key) && !l.ended.Load() {
			return true
		}
	}
	return false
}

// in reports whether any key of the core is.
func (l *loading) in(core any) bool {
	for ; l != nil; l = l.outer {
		if l.core == core && !l.ended.Load() {
			return true
		}
	}
	return false
}
