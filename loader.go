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

// flight is the one load, or wait, of a key in this process. Its fields do not change once it has begun, but for saw, and
// for those of a refresh that has ended.
type flight struct {
	*core
	key    string
	names  script.Keys
	policy Policy
	load   source
	caller context.Context // of the call that started it: gives its values, and is only asked whether it has ended
	saw    sight           // what is in Redis and cannot be served
	nested bool            // inside another load of this cache, whose permit serves for both
	guard  bool            // the Guard is asked before the load

	start atomic.Uint64   // the number at the start of the load; zero before
	lost  chan struct{}   // closed when the lease is known to be lost
	wakes <-chan struct{} // messages about the key; nil for a refresh

	verdict chan *outcome // of a flight in a batch: receives its outcome, or nil when it goes on alone
}

// outcome is how a flight ended.
type outcome struct {
	entry boxed
	err   error
	// validAt is the number up to which a caller must have arrived to be given this: nothing that was acknowledged
	// before such a caller arrived is missing from it.
	validAt uint64
	private bool // only for that call: an error of its own context
}

// always is the validAt of an outcome that depends on no data.
const always = math.MaxUint64

// joined is an outcome as one caller gets it.
type joined struct {
	*outcome
	fits   bool            // this caller may have it
	mine   bool            // this caller started the flight
	shared context.Context // of the caller that did, when it is another
}

// join waits for the key's flight and starts it when there is none.
func (c *view) join(ctx context.Context, key string, load source, saw *sight) (joined, error) {
	number := c.seq.Add(1)
	f, landed, mine := c.filling.claim(key, func() *flight {
		f := c.newFlight(ctx, key, c.policy, load, *saw)
		f.nested, f.guard = loadingIn(ctx).in(c.core), c.opts.Guard != nil
		return f
	})
	o, err := f.await(ctx, number, landed, mine)
	if !mine {
		o.shared = f.caller
	}
	return o, err
}

func (c *core) newFlight(caller context.Context, key string, policy Policy, load source, saw sight) *flight {
	return &flight{
		core: c, key: key, names: c.names(key), policy: policy, load: load, caller: caller, saw: saw, lost: make(chan struct{}),
	}
}

// await waits for a flight, for a caller with its number.
func (f *flight) await(ctx context.Context, number uint64, landed <-chan singleflight.Result, mine bool) (joined, error) {
	lost := f.lost
	take := func(r singleflight.Result) (joined, error) {
		o := r.Val.(*outcome)
		return joined{outcome: o, mine: mine, fits: mine || !o.private && number <= o.validAt}, nil
	}
	for {
		select {
		case r := <-landed:
			return take(r)
		case <-lost:
			// Something newer has happened to the key. Who arrived after the load began starts anew at once. The others
			// may have its result: else nobody would get a value under frequent invalidations.
			if number > f.start.Load() {
				return joined{outcome: &outcome{}}, nil
			}
			lost = nil
		case <-ctx.Done():
			select {
			case r := <-landed: // before
				return take(r)
			default:
				return joined{}, contextError(ctx)
			}
		}
	}
}

// answer is what a caller gets of an outcome. last is the failure that this call met before: one and the same failure
// keeps its cause.
func (c *core) answer(o joined, last *LoadError) (boxed, error) {
	if o.err != nil {
		if failed := asLoadError(o.err); last != nil && failed != nil && failed.Remote && failed.stamp == last.stamp {
			return boxed{}, last
		}
		return boxed{}, o.err
	}
	e := c.share(o.entry)
	if e.Source == Loaded && !o.mine {
		e.Source = Joined
	}
	return e, nil
}

// share gives one of several callers an entry.
func (c *core) share(e boxed) boxed {
	e.Value = c.format.of.own(e.Value)
	return e
}

// run makes the flight. singleflight needs it to return: nothing here panics, and loaders run apart.
func (f *flight) run() *outcome {
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
func (f *flight) failed(err error) *outcome { return &outcome{err: err, validAt: always} }

// lose is for a lease that is gone: later callers start a flight of their own.
func (f *flight) lose() {
	f.stats.lostLeases.Add(1)
	f.filling.remove(f.key, f)
	close(f.lost)
}

// fill gets a value into Redis, or out of it: by this process when it is granted the lease, else by the one that holds it.
func (f *flight) fill() *outcome {
	token := newToken()
	waiter := f.bus.Register(f.names.Value) // before the acquire, so that no wake is missed after it
	defer waiter.Stop()
	f.wakes = waiter.C
	wait := waiting{flight: f, waiter: waiter}
	defer wait.tell()
	var queued time.Duration
	for unusable := 0; ; {
		if !f.tryEnter() {
			// While others load, the value that was waited for may be there already.
			if o := f.peek(wait.waited); o != nil {
				return o
			}
			if wait.err = f.enter(&queued); wait.err != nil {
				return f.failed(wait.err)
			}
		}
		sent := f.seq.Add(1)
		a, err := f.acquire(token, wait.stamp)
		var saw sight
		switch {
		case err != nil || a.Status != script.Hit:
		case a.Inline:
			saw = f.judge(a.Value, a.Time/1000)
		default:
			sent, saw, err = f.lookAgain()
		}
		if err != nil {
			wait.err = f.unreached(err)
			wait.tell() // a load is no part of it
			return f.loadUnleased(token, err)
		}
		if a.Status == script.Granted {
			wait.tell()
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
				wait.err = errUnusable
				return f.failed(wait.err)
			}
			f.saw = saw
		case script.Failed:
			o := remoteFailure(a, sent)
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
func remoteFailure(a script.Acquired, validAt uint64) *outcome {
	return &outcome{err: &LoadError{Remote: true, Err: errors.New(a.Message), stamp: a.Stamp}, validAt: validAt}
}

// maxUnusable is how many different values that cannot be served a flight meets in a row before it gives up.
const maxUnusable = 8

var errUnusable = redisError(errors.New("another program keeps writing values that are no entries of this cache"))

// found is the outcome of a flight that met a value.
func (f *flight) found(saw sight, waited bool, validAt uint64) *outcome {
	f.keepLocal(saw.stored, validAt)
	if saw.kind == kindAbsent {
		return &outcome{err: f.notFound, validAt: validAt}
	}
	e := saw.entry()
	if waited {
		e.Source = Remote
	}
	return &outcome{entry: e, validAt: validAt}
}

// acquire asks for the lease. A server that found the request too late has told its time, and is asked once more.
func (f *flight) acquire(token, waited string) (a script.Acquired, err error) {
	seen := f.saw.seen() // a call that was given up goes on, maybe after shed
	for range 2 {
		var n *node
		if n, err = f.nodes.of(f.ctx, f.names.Lease); err != nil {
			return a, err
		}
		a, err = step(f.ctx, n, "acquire", func(ctx context.Context, r script.Runner) (script.Acquired, error) {
			a, err := script.Acquire(ctx, r, f.names, token, f.opts.LeaseTTL, n.clock.after(f.opts.RedisTimeout), seen, waited)
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
func (f *flight) lookAgain() (number uint64, saw sight, err error) {
	number = f.seq.Add(1)
	err = f.look(f.ctx, f.key, false, &saw)
	return number, saw, err
}

// peek is for a flight that has waited: it returns the value if that is there.
func (f *flight) peek(waited bool) *outcome {
	if !waited {
		return nil
	}
	number, saw, err := f.lookAgain()
	if err != nil || saw.state != fresh && saw.state != stale || saw.isBy(f.saw.token) {
		return nil
	}
	return f.found(saw, waited, number)
}

func (f *flight) tryEnter() bool { return f.nested || f.permits.TryAcquire(1) }

// enter waits for a permit. queued is what the flight has waited for permits so far.
func (f *flight) enter(queued *time.Duration) error {
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
func (f *flight) leave() {
	if !f.nested {
		f.permits.Release(1)
	}
}

// loading marks the context of a loader with what it loads.
type loading struct {
	core  *core
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
func (l *loading) has(core *core, key string) bool {
	for ; l != nil; l = l.outer {
		if l.core == core && (l.keys[key] || l.keys == nil && l.key == key) && !l.ended.Load() {
			return true
		}
	}
	return false
}

// in reports whether any key of the core is.
func (l *loading) in(core *core) bool {
	for ; l != nil; l = l.outer {
		if l.core == core && !l.ended.Load() {
			return true
		}
	}
	return false
}
