package stockade

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

var (
	histories    = flag.Int("histories", 25, "how many histories are made on the fake server")
	firstHistory = flag.Uint64("history", 1, "the seed of the first")
)

// I1: after every write that was acknowledged, reads return it or a later one, on any instance, through lost replies,
// late and repeated requests, lost leases, evictions, flushed scripts and nodes that do not answer.
func TestHistories(t *testing.T) {
	for seed := *firstHistory; seed < *firstHistory+uint64(*histories); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			if err := playInBubble(t, newPlan(seed)); err != nil {
				t.Error(err)
			}
		})
	}
}

func playInBubble(t *testing.T, p plan) (err error) {
	synctest.Test(t, func(t *testing.T) { err = play(t, redistest.Fake(t), p) })
	return err
}

func TestHistoriesOnARealServer(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			if err := play(t, redistest.Real(t), newPlan(seed)); err != nil {
				t.Error(err)
			}
		})
	}
}

// plan is what a history is made of.
type plan struct {
	seed      uint64
	opts      Options
	instances int
	readers   int
	reads     int // of each reader
	writers   int
	writes    int // of each writer
	sets      bool
	absent    bool          // the source does not have every fifth version
	load      time.Duration // the longest
	failures  float64       // of loads
	faults    bool
	freeze    time.Duration // the longest
	impatient bool          // the client gives a command up, and repeats it, before the cache does
	lag       time.Duration // how old a value may be that a process has without asking Redis
}

// newPlan draws a plan whose leases are short against its loads, so that many are lost.
func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(d ...time.Duration) time.Duration { return d[r.IntN(len(d))] }
	p := plan{
		seed: seed, instances: 3, readers: 6, reads: 30, writers: 2, writes: 12,
		sets: r.IntN(3) == 0, absent: r.IntN(2) == 0, load: pick(2, 20, 100) * time.Millisecond,
		failures: float64(r.IntN(2)) * 0.1, faults: r.IntN(6) > 0, impatient: r.IntN(2) == 0, freeze: pick(30, 100) * time.Millisecond,
	}
	if p.sets {
		p.writers = 1
	}
	fails := RedisFailure(r.IntN(2))
	tiers := r.IntN(4)
	if tiers == 1 {
		p.absent = false
	}
	if p.absent {
		fails = ReturnError // an error has no Source
	}
	p.opts = Options{
		Prefix: "test", RedisTimeout: 10 * time.Millisecond, LeaseTTL: 40 * time.Millisecond, LoadTimeout: 150 * time.Millisecond,
		TTL: pick(10, 50, 1000) * time.Millisecond, StaleFor: pick(-1, 50*time.Millisecond), KeepFor: pick(-1, 50*time.Millisecond),
		Jitter: 0.5, EarlyRefresh: float64(1 - 2*r.IntN(2)), AbsentTTL: pick(-1, 20*time.Millisecond),
		FailureBackoff: pick(-1, 5*time.Millisecond), WhenRedisFails: fails,
	}
	p.lag = memoryTTL + p.load
	switch tiers {
	case 0: // one process with a local tier: it knows of all changes
		p.instances, p.lag, p.opts.Local.Entries = 1, 0, 10
	case 1: // several
		p.opts.Local.Entries = 10
		p.lag += p.opts.TTL + max(p.opts.StaleFor, 0) + p.opts.LoadTimeout
	}
	return p
}

// database is the source: one row, whose versions count up. Some versions say that the row is not there.
type database struct {
	version atomic.Int64
	absent  bool
}

const firstVersion = 1

func (d *database) write() int64 { return d.version.Add(1) }

func (d *database) read() (int64, error) {
	v := d.version.Load()
	if d.isAbsent(v) {
		return 0, ErrNotFound
	}
	return v, nil
}

func (d *database) isAbsent(v int64) bool { return d.absent && v%5 == 0 }

// What clients do, for the checker. A write is two operations: between the write of the database and the
// acknowledgement both values are right, also the new one and then the old one.
type (
	written struct{ version int64 }
	acked   struct{ version int64 }
	read    struct{} // its output is what was seen
	seen    struct {
		version int64 // or absent
		source  Source
	}
)

const absent int64 = -1

// interval is what the checker knows: a version that was written and acknowledged, and the last that was written.
type interval struct{ oldest, newest int64 }

func modelOf(d *database) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return interval{firstVersion, firstVersion} },
		Step: func(state, input, output any) (bool, any) {
			s := state.(interval)
			switch in := input.(type) {
			case written:
				s.newest = max(s.newest, in.version)
			case acked:
				s.oldest = max(s.oldest, in.version)
			case read:
				v := output.(seen).version
				if v != absent {
					return s.oldest <= v && v <= s.newest, s
				}
				for v := s.oldest; v <= s.newest; v++ {
					if d.isAbsent(v) {
						return true, s
					}
				}
				return false, s
			}
			return true, s
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%T %v → %v", input, input, output) },
	}
}

// history is what has happened so far.
type history struct {
	clock atomic.Int64  // counts, since in one instant of a bubble much happens
	local time.Duration // how old a value may be that a process has without asking Redis
	stale bool          // a stale value may be such a one

	mu     sync.Mutex
	ops    []porcupine.Operation // guarded by mu
	older  []porcupine.Operation // guarded by mu: reads of what may be old: their intervals are too long to be searched
	begins []begin               // guarded by mu: of all operations, in their order
	err    error                 // guarded by mu: the first thing that was wrong
}

type begin struct {
	clock int64
	at    time.Time
}

// record notes an operation when it ends; call says what it was, or nil when it has no result.
func (h *history) record(client int, call func() (input, output any)) {
	h.mu.Lock()
	begun := begin{h.clock.Add(1), time.Now()}
	h.begins = append(h.begins, begun)
	h.mu.Unlock()
	input, output := call()
	if input == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	op := porcupine.Operation{ClientId: client, Input: input, Call: begun.clock, Output: output, Return: h.clock.Add(1)}
	if out, ok := output.(seen); ok && h.local > 0 && (out.source == Local || out.source == Stale && h.stale) {
		op.Call = h.sinceLocked(begun.at.Add(-h.local)).clock
		h.older = append(h.older, op)
		return
	}
	h.ops = append(h.ops, op)
}

// sinceLocked returns the first begin at a time or later.
func (h *history) sinceLocked(at time.Time) begin {
	i, _ := slices.BinarySearchFunc(h.begins, at, func(b begin, at time.Time) int { return b.at.Compare(at) })
	return h.begins[i]
}

func (h *history) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = fmt.Errorf(format, args...)
	}
}

func (h *history) judge(d *database) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	if why := h.explain(h.older); why != "" {
		return errors.New("a value is too old" + why)
	}
	if result := porcupine.CheckOperationsTimeout(modelOf(d), h.ops, time.Minute); result != porcupine.Ok {
		return fmt.Errorf("the history of %d operations is %s%s", len(h.ops), result, h.explain(h.ops))
	}
	return nil
}

// explain finds the first read that is plainly wrong.
func (h *history) explain(reads []porcupine.Operation) string {
	for _, r := range reads {
		if _, ok := r.Input.(read); !ok {
			continue
		}
		for _, w := range h.ops {
			if a, ok := w.Input.(acked); ok && w.Return < r.Call && r.Output.(seen).version != absent && r.Output.(seen).version < a.version {
				return fmt.Sprintf(": client %d read %v at %d to %d, and %d was acknowledged at %d",
					r.ClientId, r.Output, r.Call, r.Return, a.version, w.Return)
			}
		}
	}
	return ""
}

// play makes a history and judges it.
func play(t *testing.T, s redistest.Server, p plan) error {
	h, db := &history{local: p.lag, stale: p.opts.Local.Entries > 0}, &database{absent: p.absent}
	db.version.Store(firstVersion)
	p.opts.Observer.Load = stampsOf(h)
	c := newChaos(t, s, p)
	admin := s.Client(t)
	watch := watchExpiries(h, admin, p)

	var clients sync.WaitGroup
	for i := range p.readers {
		r := reader{h: h, db: db, plan: p, client: i, cache: c.caches[i%p.instances], rand: rand.New(rand.NewPCG(p.seed, uint64(i)))}
		clients.Go(r.run)
	}
	for i := range p.writers {
		w := writer{h: h, db: db, plan: p, client: p.readers + i, caches: c.caches, rand: rand.New(rand.NewPCG(p.seed, uint64(100+i)))}
		clients.Go(w.run)
	}
	if p.faults {
		c.run(admin)
	}
	clients.Wait()
	c.stop()
	for _, cache := range c.caches {
		if u := cache.Stats().Undecodable; u != 0 {
			h.wrong("%d values could not be decoded", u)
		}
	}
	c.close()
	// I10: a lease that is left is one of a request whose end nobody has heard of. Goroutines are counted by the bubble.
	time.Sleep(p.opts.LeaseTTL + 2*time.Millisecond)
	if left := leases(t, s); left != 0 {
		h.wrong("%d leases are left", left)
	}
	watch()
	return h.judge(db)
}

// stampsOf notes when a grant commits twice. I2
func stampsOf(h *history) func(LoadEvent) {
	var mu sync.Mutex
	last := map[string]bool{}
	return func(e LoadEvent) {
		mu.Lock()
		defer mu.Unlock()
		if e.Outcome == Stored && e.Stamp != "" {
			if last[e.Key+e.Stamp] {
				h.wrong("two loads were committed of %s under the stamp %s", e.Key, e.Stamp)
			}
			last[e.Key+e.Stamp] = true
		}
	}
}

// watchExpiries looks at all keys again and again until it is told to stop. I9
func watchExpiries(h *history, admin *redis.Client, p plan) (stop func()) {
	longest := map[string]time.Duration{
		"v": p.opts.TTL + max(p.opts.StaleFor, 0) + max(p.opts.KeepFor, 0), "l": p.opts.LeaseTTL, "e": max(p.opts.FailureBackoff, time.Second),
	}
	longest["v"] = max(longest["v"], p.opts.AbsentTTL)
	look := func() {
		ctx := context.Background()
		keys, err := admin.Keys(ctx, "*").Result()
		if err != nil {
			h.wrong("KEYS: %w", err)
		}
		for _, key := range keys {
			left, err := admin.PTTL(ctx, key).Result()
			kind := strings.Split(key, ":")[2]
			if err != nil || left == -1 || left > longest[kind] {
				h.wrong("%s expires in %v, %v; asked were %v at most", key, left, err, longest[kind])
			}
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			look()
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() { close(done); wg.Wait(); look() }
}
