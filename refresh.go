package stockade

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/internal/script"
)

// refresh renews a value in the background, unless that is happening already or too much else is.
func (c *view) refresh(ctx context.Context, key string, load source, saw *sight) {
	if c.refreshing.has(key) || loadingIn(ctx).has(c.core, key) {
		return
	}
	f := c.newFlight(ctx, key, c.policy, load, *saw)
	if !c.refreshing.add(key, f) {
		return
	}
	event := RefreshEvent{Key: key, Early: saw.state == fresh, Skipped: true}
	if !c.inBackground(func() { f.refresh(event) }) {
		c.refreshing.remove(key, f)
		c.tellRefresh(event)
	}
}

// inBackground runs a refresh that has a permit and a place in the background, which it gives back. It reports false
// when there is none.
func (c *core) inBackground(refresh func()) bool {
	switch {
	case !c.background.TryAcquire(1):
		return false
	case !c.permits.TryAcquire(1):
	case c.work.Run(refresh):
		return true
	default:
		c.permits.Release(1)
	}
	c.background.Release(1)
	return false
}

// refresh asks for the lease once: whatever another process does with the key is a refresh too.
func (f *flight) refresh(event RefreshEvent) {
	defer f.refreshing.remove(f.key, f)
	f.stats.flights.Add(1)
	defer f.stats.flights.Add(-1)
	span := f.opts.Observer.begin(f.caller, SpanBegin{Span: SpanRefresh, Keys: []string{f.key}})
	f.caller = span.ctx // nobody joins it
	token := newToken()
	asked := f.seq.Add(1)
	a, err := f.acquire(token, "")
	var pause time.Duration // until the next refresh may begin
	switch {
	case err != nil:
		f.leave()
		f.disown(token, err)
		event.Err = redisError(err)
		pause = f.opts.RedisTimeout
	case a.Status == script.Granted:
		event.Skipped = false
		f.stats.refreshes.Add(1)
		o := f.loadLeased(lease{token: token, stamp: a.Stamp, time: a.Time, at: time.Now()})
		pause, event.Err = o.refreshed(f.opts.FailureBackoff)
	case a.Status == script.Hit:
		f.leave()
		f.met(a, asked)
		pause = firstPoll
	default:
		f.leave()
		pause = lastPoll
	}
	f.background.Release(1)
	span.end(SpanEnd{Err: event.Err, Skipped: event.Skipped})
	f.tellRefresh(event)
	f.shed()
	// While another process holds the lease, or a failure of the last load stands, hits must not keep asking.
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.ctx.Done():
		}
	}
}

// shed lets go of what a refresh that has ended does not need: the pause may be long, and a caller's context has its request.
func (f *flight) shed() { f.caller, f.load, f.saw = nil, source{}, sight{} }

// met takes up what another process has stored meanwhile: the local tier must not ask for its refresh again.
func (f *flight) met(a script.Acquired, asked uint64) {
	if f.local == nil {
		return
	}
	if a.Inline {
		if saw := f.judge(a.Value, a.Time/1000); saw.state == fresh || saw.state == stale {
			f.keepLocal(saw.stored, asked)
			return
		}
	}
	f.local.forget(f.seq.Add(1), f.key)
}

// refreshed is what a refresh says of its load, and how long the next must wait.
func (o *outcome) refreshed(backoff time.Duration) (pause time.Duration, err error) {
	if !isAbsent(o.err) {
		err = o.err
	}
	if o.private || o.entry.NoStore {
		pause = backoff // nothing came of it, and Redis knows of no failure: the value stays as stale as it is
	}
	return pause, err
}

func (c *core) tellRefresh(e RefreshEvent) {
	if e.Skipped {
		c.stats.skipped.Add(1)
	}
	tell(c.opts.Observer.Refresh, e)
}

// refreshMany renews values in the background by one load, but for those that are being renewed already.
func (c *core) refreshMany(ctx context.Context, policy Policy, load source, old []miss) {
	b := &batch{core: c, load: load, caller: ctx}
	outer := loadingIn(ctx)
	var events []RefreshEvent
	for _, m := range old {
		if c.refreshing.has(m.key) || outer.has(c, m.key) {
			continue
		}
		f := c.newFlight(ctx, m.key, policy, load, m.saw)
		if c.refreshing.add(m.key, f) {
			b.flights = append(b.flights, f)
			events = append(events, RefreshEvent{Key: m.key, Early: m.saw.state == fresh, Skipped: true})
		}
	}
	if len(b.flights) == 0 || c.inBackground(func() { b.refresh(events) }) {
		return
	}
	for i, f := range b.flights {
		c.refreshing.remove(f.key, f)
		c.tellRefresh(events[i])
	}
}

// refresh asks for the leases once, as the refresh of one key does.
func (b *batch) refresh(events []RefreshEvent) {
	b.stats.flights.Add(int64(len(b.flights)))
	defer b.stats.flights.Add(-int64(len(b.flights)))
	pauses := make([]time.Duration, len(b.flights)) // until the next refresh of a key may begin
	var load []*bid
	var which []int
	bids := make([]*bid, len(b.flights))
	for i, f := range b.flights {
		bids[i] = &bid{flight: f, token: newToken()}
	}
	span := b.trace(SpanRefresh, bids)
	b.caller = span.ctx
	asked := b.seq.Add(1)
	b.acquire(bids)
	b.disown(bids)
	for i, bid := range bids {
		switch {
		case bid.err != nil:
			events[i].Err = redisError(bid.err)
			pauses[i] = b.opts.RedisTimeout
		case bid.acquired.Status == script.Granted:
			events[i].Skipped = false
			load, which = append(load, bid), append(which, i)
		case bid.acquired.Status == script.Hit:
			bid.met(bid.acquired, asked)
			pauses[i] = firstPoll
		default:
			pauses[i] = lastPoll
		}
	}
	leave := b.flights[0].leave
	if len(load) == 0 {
		leave()
	} else {
		b.stats.refreshes.Add(1)
		for j, o := range b.loadAll(load, nil, leave) {
			pauses[which[j]], events[which[j]].Err = o.refreshed(b.opts.FailureBackoff)
		}
	}
	b.background.Release(1)
	span.end(refreshEndOf(events))
	for _, e := range events {
		b.tellRefresh(e)
	}
	b.caller, b.load = nil, source{}
	for _, f := range b.flights {
		f.shed()
	}
	// While another process holds a lease, or a failure of the last load stands, hits must not keep asking.
	order := make([]int, len(pauses))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(pauses[x], pauses[y]) })
	begun := time.Now()
	for _, i := range order {
		b.sleepUntil(begun.Add(pauses[i]))
		b.refreshing.remove(b.flights[i].key, b.flights[i])
	}
}
