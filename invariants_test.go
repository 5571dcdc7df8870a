package stockade

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
)

// scenario acts out one threat to an invariant, and returns what was wrong. mutation_test.go shows that it would be.
type scenario func(t *testing.T, s redistest.Server) error

func holds(t *testing.T, s scenario) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, server redistest.Server) {
		if err := s(t, server); err != nil {
			t.Error(err)
		}
	})
}

// settle is time enough for what goroutines have begun, on a real server too.
const settle = 20 * time.Millisecond

// pending is a Get whose loader waits until it is told what to return.
type pending struct {
	began chan struct{}
	end   chan result
	got   chan result
}

type result struct {
	value Entry[string]
	err   error
}

func get(c *Cache[string], key string) *pending {
	p := &pending{make(chan struct{}), make(chan result, 1), make(chan result, 1)}
	go func() {
		e, err := c.Fetch(context.Background(), key, func(ctx context.Context, _ *Entry[string]) (Entry[string], error) {
			close(p.began)
			select {
			case r := <-p.end:
				return r.value, r.err
			case <-ctx.Done():
				return Entry[string]{}, ctx.Err()
			}
		})
		p.got <- result{e, err}
	}()
	return p
}

func (p *pending) finish(e Entry[string], err error) result {
	p.end <- result{e, err}
	return <-p.got
}

func getNow(c *Cache[string], key, value string) result {
	e, err := c.Fetch(context.Background(), key, func(context.Context, *Entry[string]) (Entry[string], error) {
		return Entry[string]{Value: value}, nil
	})
	return result{e, err}
}

func expect(what string, r result, want string) error {
	if r.err != nil || r.value.Value != want {
		return fmt.Errorf("%s: got %q, %v, want %q", what, r.value.Value, r.err, want)
	}
	return nil
}

func storedIn(c *Cache[string], key string) string {
	e, err := c.Lookup(context.Background(), key)
	if err != nil {
		return err.Error()
	}
	return e.Value
}

// I1: what an invalidation has overtaken is not stored.
func TestNoStaleSetAfterInvalidate(t *testing.T) { holds(t, staleSetAfterInvalidate) }

func staleSetAfterInvalidate(t *testing.T, s redistest.Server) error {
	a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	return expect("after the invalidation", getNow(b, "k", "new"), "new")
}

// I1: what a Set has overtaken is not stored.
func TestNoStaleSetAfterSet(t *testing.T) { holds(t, staleSetAfterSet) }

func staleSetAfterSet(t *testing.T, s redistest.Server) error {
	a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	p := get(a, "k")
	<-p.began
	if err := b.Set(t.Context(), "k", "new"); err != nil {
		return err
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	return expect("after the Set", getNow(b, "k", "newer"), "new")
}

// I1: a caller does not get the result of a load that began before a write which was acknowledged, elsewhere, before
// the caller came. Numbers tell which was first; a clock that stands still would not.
func TestNoJoiningOfAnOlderLoad(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error { return joinOlderLoad(t, s, false) })
}

func joinOlderLoad(t *testing.T, s redistest.Server, clock bool) error {
	a, b := open[string](t, s.Client(t)), open[string](t, s.Client(t))
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	if clock {
		a.seq.Store(a.filling.get("k").start.Load() - 1) // the next number is that of the load's instant
	}
	late := make(chan result)
	go func() { late <- getNow(a, "k", "new") }()
	time.Sleep(settle)
	if err := expect("who came before", p.finish(Entry[string]{Value: "old"}, nil), "old"); err != nil {
		return err
	}
	return expect("who came after", <-late, "new")
}

// I1: the same for a process that has lost Redis, while another has not.
func TestNoJoiningOfAnOlderLocalLoad(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error {
		proxy := redistest.NewProxy(t, s)
		a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
		proxy.Freeze()
		defer proxy.Thaw()
		p := get(a, "k")
		<-p.began
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			return err
		}
		late := make(chan result)
		go func() { late <- getNow(a, "k", "new") }()
		time.Sleep(settle)
		p.finish(Entry[string]{Value: "old", NoStore: true}, nil)
		return expect("who came after", <-late, "new")
	})
}

// I1: a server that is full refuses leases and acknowledges invalidations, so nothing may be remembered meanwhile.
func TestNothingIsRememberedWhileWritesAreAcknowledged(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		a, b := open[string](t, rdb), open[string](t, s.Client(t))
		for _, value := range []string{"old", "new"} {
			faults.Refuse(1, runs("acquire"), refusal("OOM command not allowed when used memory > 'maxmemory'."))
			if err := expect("locally", getNow(a, "k", value), value); err != nil {
				return err
			}
			if err := b.Invalidate(t.Context(), "k"); err != nil {
				return err
			}
		}
		return nil
	})
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// runs matches the commands that run a step.
func runs(step string) redistest.Match {
	return func(command []string) bool { return script.StepOf(command) == step }
}

// I1: a hit does not come from a trip that had left before the caller came.
func TestNoHitOfATripThatHasLeft(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error { return hitOfATripThatHasLeft(t, s, false) })
}

func hitOfATripThatHasLeft(t *testing.T, s redistest.Server, unchecked bool) error {
	proxy := redistest.NewProxy(t, s)
	a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
	if err := expect("first", getNow(a, "k", "old"), "old"); err != nil {
		return err
	}
	proxy.Delay(5 * settle)
	early, late := make(chan result, 1), make(chan result, 1)
	go func() { early <- getNow(a, "k", "?") }()
	time.Sleep(settle)
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	if unchecked {
		n := a.nodes.single
		n.mu.Lock()
		for f := range n.out {
			f.trip.number = math.MaxUint64 // as if it had not left yet
		}
		n.mu.Unlock()
	}
	go func() { late <- getNow(a, "k", "new") }()
	time.Sleep(settle)
	proxy.Delay(0)
	if err := expect("who came before", <-early, "old"); err != nil {
		return err
	}
	return expect("who came after", <-late, "new")
}

// I1: a Set that was given up does not happen later.
func TestNoLateSet(t *testing.T) { holds(t, lateSet) }

// I1: nor does it when the server's clock was read off a reply whose request had been held up.
func TestNoLateSetAfterASlowRequest(t *testing.T) { holds(t, lateSetAfterASlowRequest) }

func lateSetAfterASlowRequest(t *testing.T, s redistest.Server) error {
	proxy := redistest.NewProxy(t, s)
	a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
	if err := b.Set(t.Context(), "another", "v"); err != nil { // so that the server knows the script
		return err
	}
	proxy.Freeze()
	thawed := time.AfterFunc(200*time.Millisecond, proxy.Thaw)
	defer thawed.Stop()
	if v := storedIn(a, "other"); v != ErrMiss.Error() { // the first sample: the clock seems 100 ms ahead
		return errors.New(v)
	}
	proxy.Freeze()
	defer proxy.Thaw()
	if err := a.Set(t.Context(), "k", "old"); !errors.Is(err, ErrRedis) {
		return fmt.Errorf("a Set without an answer: got %v", err)
	}
	proxy.Thaw()
	time.Sleep(settle)
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("a Set happened after it had failed: %q", v)
	}
	return nil
}

func lateSet(t *testing.T, s redistest.Server) error {
	proxy := redistest.NewProxy(t, s)
	a, b := open[string](t, proxy.Client(t)), open[string](t, s.Client(t))
	if err := a.Set(t.Context(), "other", "v"); err != nil { // so that the clock is known
		return err
	}
	proxy.Freeze()
	defer proxy.Thaw()
	if err := a.Set(t.Context(), "k", "old"); !errors.Is(err, ErrRedis) {
		return fmt.Errorf("a Set without an answer: got %v", err)
	}
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	proxy.Thaw()
	time.Sleep(settle)
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("a Set happened after it had failed: %q", v)
	}
	return nil
}

// I2: the token alone does not commit: a delayed copy of its acquire may have taken the lease again.
func TestOnlyTheStampOfTheGrantCommits(t *testing.T) { holds(t, commitAfterACopiedAcquire) }

func commitAfterACopiedAcquire(t *testing.T, s redistest.Server) error {
	rdb, other := s.Client(t), s.Client(t)
	seen := &recorder{}
	rdb.AddHook(seen)
	a, b := open[string](t, rdb), open[string](t, other)
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // two grants in one microsecond would have one stamp
	if err := other.Do(t.Context(), seen.last("acquire")...).Err(); err != nil {
		return err
	}
	if leases(t, s) != 1 {
		return errors.New("the copy was not granted")
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("stored: %q", v)
	}
	return nil
}

// recorder is a hook that keeps the single commands.
type recorder struct {
	mu   sync.Mutex
	args [][]any // guarded by mu
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.mu.Lock()
		r.args = append(r.args, cmd.Args())
		r.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// last returns the last command that ran a step.
func (r *recorder) last(step string) []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, args := range slices.Backward(r.args) {
		if isStep(args, step) {
			return args
		}
	}
	return nil
}

// count returns how often a step was sent. A server that did not know it was sent it twice.
func (r *recorder) count(step string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, args := range r.args {
		if isStep(args, step) && args[0] == "evalsha" {
			n++
		}
	}
	return n
}

func isStep(args []any, step string) bool {
	return len(args) > 1 && runs(step)([]string{fmt.Sprint(args[0]), fmt.Sprint(args[1])})
}

// I3: a load that has lost its lease changes nothing for the one that has it, however it ends.
func TestAForeignTokenChangesNothing(t *testing.T) { holds(t, foreignToken) }

func foreignToken(t *testing.T, s redistest.Server) error {
	for name, end := range map[string]result{
		"commit": {value: Entry[string]{Value: "old"}}, "release": {value: Entry[string]{NoStore: true}},
		"fail": {err: errSource}, "absent": {err: ErrNotFound},
	} {
		for _, absentTTL := range []time.Duration{time.Second, -1} { // drop
			rdb := s.Client(t)
			a, b := open[string](t, s.Client(t), func(o *Options) { o.AbsentTTL = absentTTL }), open[string](t, rdb)
			key := fmt.Sprint(name, absentTTL)
			lost := get(a, key)
			<-lost.began
			if err := b.Invalidate(t.Context(), key); err != nil {
				return err
			}
			holder := get(b, key)
			<-holder.began
			before := rdb.Get(t.Context(), b.names(key).Lease).Val()
			lost.finish(end.value, end.err)
			if after := rdb.Get(t.Context(), b.names(key).Lease).Val(); before == "" || after != before {
				return fmt.Errorf("%s: the holder's lease was %q and is %q", key, before, after)
			}
			if n := rdb.Exists(t.Context(), b.names(key).Value, b.names(key).Failure).Val(); n != 0 {
				return fmt.Errorf("%s: something was stored", key)
			}
			if err := expect(key, holder.finish(Entry[string]{Value: "new"}, nil), "new"); err != nil {
				return err
			}
			if v := storedIn(a, key); v != "new" {
				return fmt.Errorf("%s: stored: %q", key, v)
			}
		}
	}
	return nil
}

// I3: a load whose lease is gone does not renew the kept value either, nor end the lease of the next.
func TestAForeignTokenTouchesNothing(t *testing.T) { holds(t, foreignTouch) }

func foreignTouch(t *testing.T, s redistest.Server) error {
	rdb := s.Client(t)
	a, b := open[string](t, s.Client(t)), open[string](t, rdb)
	if err := b.With(Policy{TTL: settle / 2, KeepFor: time.Hour}).Set(t.Context(), "k", "kept"); err != nil {
		return err
	}
	time.Sleep(settle)
	lost := get(a, "k")
	<-lost.began
	if err := rdb.Del(t.Context(), b.names("k").Lease).Err(); err != nil { // an eviction
		return err
	}
	holder := get(b, "k")
	<-holder.began
	before := rdb.Get(t.Context(), b.names("k").Lease).Val()
	lost.finish(Entry[string]{}, ErrNotModified)
	if after := rdb.Get(t.Context(), b.names("k").Lease).Val(); before == "" || after != before {
		return fmt.Errorf("the holder's lease was %q and is %q", before, after)
	}
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("stored: %q", v)
	}
	return expect("the holder", holder.finish(Entry[string]{}, ErrNotModified), "kept")
}

// I3: "not modified" writes no head before a payload that is gone; the value that the loader was given is stored instead.
func TestTheHeadOfAnEvictedValueIsNotTouched(t *testing.T) { holds(t, touchOfAnEvictedValue) }

func touchOfAnEvictedValue(t *testing.T, s redistest.Server) error {
	rdb := s.Client(t)
	c := open[string](t, rdb)
	if err := c.With(Policy{TTL: settle / 2, KeepFor: time.Hour}).Set(t.Context(), "k", "kept"); err != nil {
		return err
	}
	time.Sleep(settle)
	holder := get(c, "k")
	<-holder.began
	if err := rdb.Del(t.Context(), c.names("k").Value).Err(); err != nil {
		return err
	}
	if err := expect("the holder", holder.finish(Entry[string]{}, ErrNotModified), "kept"); err != nil {
		return err
	}
	if v := storedIn(c, "k"); v != "kept" {
		return fmt.Errorf("stored: %q", v)
	}
	return nil
}

// I3: a renewal neither re-creates a lease that was lost nor prolongs another's.
func TestARenewalOfALostLease(t *testing.T) { holds(t, renewalOfALostLease) }

func renewalOfALostLease(t *testing.T, s redistest.Server) error {
	const lease = 480 * time.Millisecond
	short := func(o *Options) { o.RedisTimeout, o.LeaseTTL = lease/4, lease }
	a, b := open[string](t, s.Client(t), short), open[string](t, s.Client(t), short)
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	time.Sleep(lease / 2) // with a renewal in it
	if n := leases(t, s); n != 0 {
		return errors.New("the lease is back")
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	return nil
}

// I4: a step whose reply is lost is repeated, and nothing shows it: within the client, and by the cache.
func TestLostReplies(t *testing.T) {
	for _, step := range []string{"acquire", "renew", "commit", "touch", "drop", "fail", "release", "invalidate", "expire"} {
		t.Run(step, func(t *testing.T) { holds(t, lostReplyOf(step)) })
	}
}

func lostReplyOf(step string) scenario {
	return func(t *testing.T, s redistest.Server) error {
		// The first time nothing is lost: the server learns the scripts.
		for _, where := range []string{"nobody", "connection", "hook"} {
			if err := loseReplyOf(t, s, step, where); err != nil {
				return fmt.Errorf("lost by the %s: %w", where, err)
			}
		}
		return nil
	}
}

func loseReplyOf(t *testing.T, s redistest.Server, step, where string) error {
	const lease, quick = 1200 * time.Millisecond, 450 * time.Millisecond
	proxy, faults := redistest.NewProxy(t, s), redistest.NewFaults(t)
	rdb := proxy.Client(t)
	rdb.AddHook(faults)
	var last atomic.Int64
	a := open[string](t, rdb, func(o *Options) {
		o.RedisTimeout, o.LeaseTTL, o.StaleFor, o.AbsentTTL = lease/4, lease, time.Hour, -1
		o.Observer.Load = func(e LoadEvent) { last.Store(int64(e.Outcome)) }
	})
	b := open[string](t, s.Client(t))
	key := step + where
	if step == "touch" || step == "expire" {
		if err := b.With(Policy{TTL: 10 * time.Millisecond, StaleFor: -1, KeepFor: time.Hour}).Set(t.Context(), key, "kept"); err != nil {
			return err
		}
		time.Sleep(settle)
	}
	switch where {
	case "hook":
		faults.LoseReply(1, runs(step))
	case "connection":
		proxy.DropReplies(1, runs(step))
	}
	end, want, outcome, took := result{value: Entry[string]{Value: "v"}}, "v", Stored, time.Duration(0)
	switch step {
	case "renew":
		took = lease * 3 / 2
	case "touch":
		end, want = result{err: ErrNotModified}, "kept"
	case "drop":
		end, want = result{err: ErrNotFound}, ErrMiss.Error()
	case "fail":
		end, want, outcome = result{err: errSource}, ErrMiss.Error(), NotStored
	case "release":
		end, want, outcome = result{value: Entry[string]{NoStore: true}}, ErrMiss.Error(), NotStored
	}
	begun := time.Now()
	p := get(a, key)
	select {
	case <-p.began:
	case r := <-p.got:
		return fmt.Errorf("no load: %v", r)
	}
	if waited := time.Since(begun); waited > quick {
		return fmt.Errorf("the load began after %v", waited)
	}
	time.Sleep(took)
	r := p.finish(end.value, end.err)
	if step == "drop" && where != "nobody" {
		outcome = Rejected // a drop leaves nothing that a repeated one could recognise
	}
	if got := Outcome(last.Load()); got != outcome {
		return fmt.Errorf("the load was %v, want %v: %v", got, outcome, r)
	}
	switch step {
	case "invalidate":
		if err := a.Invalidate(t.Context(), key); err != nil {
			return err
		}
		want = ErrMiss.Error()
	case "expire":
		if err := a.Expire(t.Context(), key); err != nil {
			return err
		}
		if e, err := b.Lookup(t.Context(), key); err != nil || e.Source != Stale {
			return fmt.Errorf("after Expire: %v, %w", e, err)
		}
	}
	if v := storedIn(b, key); v != want {
		return fmt.Errorf("stored: %q, want %q", v, want)
	}
	time.Sleep(settle)
	if n := leases(t, s); n != 0 {
		return fmt.Errorf("%d leases are left", n)
	}
	return nil
}

// I3: an acquire that arrives when nobody waits for it any more leaves no lease behind.
func TestNoLateAcquire(t *testing.T) { holds(t, lateAcquire) }

func lateAcquire(t *testing.T, s redistest.Server) error {
	rdb, seen := s.Client(t), &recorder{}
	rdb.AddHook(seen)
	c := open[string](t, rdb, func(o *Options) { o.RedisTimeout = 10 * settle })
	if err := expect("first", getNow(c, "k", "v"), "v"); err != nil {
		return err
	}
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	time.Sleep(11 * settle)
	if err := s.Client(t).Do(t.Context(), seen.last("acquire")...).Err(); err != nil { // a copy that was under way
		return err
	}
	if n := leases(t, s); n != 0 {
		return errors.New("a lease that nobody holds")
	}
	return nil
}

// I6: without faults there is one load per key and expiry in the fleet, refreshes included.
func TestOneLoadPerExpiry(t *testing.T) { holds(t, oneLoadPerExpiry) }

func oneLoadPerExpiry(t *testing.T, s redistest.Server) error {
	for name, change := range map[string]func(*Options){
		"fresh": func(*Options) {},
		"stale": func(o *Options) { o.StaleFor = time.Hour },
		"early": func(o *Options) { o.EarlyRefresh = 1 },
	} {
		if err := fleetLoads(t, s, name, change); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func fleetLoads(t *testing.T, s redistest.Server, key string, change func(*Options)) error {
	const ttl, takes, expiries = 200 * time.Millisecond, 40 * time.Millisecond, 4
	var mu sync.Mutex
	var begins, ends []time.Time
	load := func(context.Context) (string, error) {
		mu.Lock()
		begins = append(begins, time.Now())
		mu.Unlock()
		time.Sleep(takes)
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, time.Now())
		return "v", nil
	}
	var wg sync.WaitGroup
	end := time.Now().Add(expiries * (ttl + takes))
	for range 4 {
		c := open[string](t, s.Client(t), func(o *Options) { o.TTL = ttl; change(o) })
		for range 10 {
			wg.Go(func() {
				for time.Now().Before(end) {
					if v, err := c.Get(context.Background(), key, load); v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
					time.Sleep(7 * time.Millisecond)
				}
			})
		}
	}
	wg.Wait()
	time.Sleep(2 * takes) // a refresh may have begun last
	// The next load begins when the value of the last is due, which the first half of its lifetime never is. Whatever a
	// busy machine delays only lengthens the time from an end to the next beginning.
	due := ttl - settle
	if key == "early" {
		due = ttl/2 - settle
	}
	for i := 1; i < len(begins); i++ {
		if after := begins[i].Sub(ends[i-1]); after < due {
			return fmt.Errorf("load %d began %v after the one before had ended, of %d", i, after, len(begins))
		}
	}
	if len(begins) < expiries {
		return fmt.Errorf("%d loads in %d expiries", len(begins), expiries)
	}
	return nil
}

// I6: who missed a value that has been stored since does not load it again.
func TestAnAcquireFindsAStoredValue(t *testing.T) { holds(t, acquireOfAStoredValue) }

func acquireOfAStoredValue(t *testing.T, s redistest.Server) error {
	faults := redistest.NewFaults(t)
	rdb := s.Client(t)
	rdb.AddHook(faults)
	a, b := open[string](t, rdb), open[string](t, s.Client(t))
	reached, release := faults.Block(runs("acquire"))
	defer release()
	got := make(chan result)
	go func() { got <- getNow(a, "k", "again") }()
	<-reached
	if err := b.Set(t.Context(), "k", "v"); err != nil {
		return err
	}
	release()
	return expect("who missed it", <-got, "v")
}

// I7: after an invalidation a failure no longer keeps the fleet from loading.
func TestInvalidateEndsTheBackoff(t *testing.T) { holds(t, invalidatedFailure) }

func invalidatedFailure(t *testing.T, s redistest.Server) error {
	minute := func(o *Options) { o.FailureBackoff = time.Minute }
	a, b := open[string](t, s.Client(t), minute), open[string](t, s.Client(t), minute)
	p := get(a, "k")
	<-p.began
	p.finish(Entry[string]{}, errSource)
	if r := getNow(b, "k", "v"); r.err == nil {
		return errors.New("no failure")
	}
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	return expect("after the invalidation", getNow(a, "k", "v"), "v")
}

// I11: nothing that is served is older than TTL + StaleFor + LoadTimeout, when nobody invalidates; without StaleFor
// than TTL + its load.
func TestStalenessThroughFaults(t *testing.T) {
	for _, staleFor := range []time.Duration{-1, 60 * time.Millisecond} {
		holds(t, func(t *testing.T, s redistest.Server) error { return staleness(t, s, staleFor) })
	}
}

func staleness(t *testing.T, s redistest.Server, staleFor time.Duration) error {
	const ttl, longest, timeout = 50 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond
	// The source is the time itself: how old a value is can be read off it.
	start := time.Now()
	h := &history{}
	p := plan{seed: 1, instances: 3, impatient: true, faults: true, freeze: 30 * time.Millisecond, opts: Options{
		Prefix: "test", TTL: ttl, StaleFor: staleFor, EarlyRefresh: 1, LoadTimeout: timeout, RedisTimeout: 10 * time.Millisecond, LeaseTTL: 40 * time.Millisecond,
	}}
	c := newChaos(t, s, p)
	bound := ttl + longest
	if staleFor > 0 {
		bound = ttl + staleFor + timeout
	}
	if _, real := s.(*redistest.RealServer); real {
		bound += settle // the test's own goroutines wait for a processor
	}
	var wg sync.WaitGroup
	for i := range 6 {
		cache := c.caches[i%len(c.caches)]
		wg.Go(func() {
			for n := range 100 {
				asked := time.Since(start)
				e, err := cache.Fetch(context.Background(), "k", func(context.Context, *Entry[int64]) (Entry[int64], error) {
					e := Entry[int64]{Value: int64(time.Since(start))}
					time.Sleep(longest * time.Duration((i+n)%7) / 6)
					return e, nil
				})
				limit := bound
				if e.Source == Local {
					limit = memoryTTL + longest
				}
				if age := asked - time.Duration(e.Value); err == nil && age > limit {
					h.wrong("a value of %v was %v old, source %v", time.Duration(e.Value), age, e.Source)
				}
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	c.run(s.Client(t))
	wg.Wait()
	c.stop()
	c.close()
	return h.err
}

// I12: however many callers wait in a process, it sends four commands and one a poll. (Its first wait sends two more: it
// learns the server's time, and asks once when its subscription has come up.) A hit costs one.
func TestCommandsOfAWaitAndOfAHit(t *testing.T) {
	holds(t, func(t *testing.T, s redistest.Server) error {
		faults := redistest.NewFaults(t)
		rdb := s.Client(t)
		rdb.AddHook(faults)
		a, b := open[string](t, s.Client(t)), open[string](t, rdb)
		for _, wait := range []struct {
			key  string
			most int
		}{{"first", 6}, {"second", 4}} {
			before, polled := faults.Count(), b.Stats().Polls
			p := get(a, wait.key)
			<-p.began
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if err := expect("a waiter", getNow(b, wait.key, "?"), "v"); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(400 * time.Millisecond)
			p.finish(Entry[string]{Value: "v"}, nil)
			wg.Wait()
			sent, polls := faults.Count()-before, int(b.Stats().Polls-polled)
			if sent > wait.most+polls {
				return fmt.Errorf("the %s wait, with %d polls, sent %d commands", wait.key, polls, sent)
			}
		}
		before := faults.Count()
		for range 10 {
			if err := expect("a hit", getNow(b, "second", "?"), "v"); err != nil {
				return err
			}
		}
		if sent := faults.Count() - before; sent != 10 {
			return fmt.Errorf("10 hits sent %d commands", sent)
		}
		return nil
	})
}
