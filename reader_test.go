package stockade

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// wire stands for the server of a node: trips are out until they are let in.
type wire struct {
	mu  sync.Mutex
	out []chan error // guarded by mu: of the trips that are out
	log []int        // guarded by mu: the keys of each that has left
}

func (w *wire) fly(_ context.Context, t *trip) error {
	landed := make(chan error)
	w.mu.Lock()
	w.out = append(w.out, landed)
	w.log = append(w.log, len(t.names()))
	w.mu.Unlock()
	if err := <-landed; err != nil {
		return err
	}
	t.values = make([]any, len(t.names()))
	for i, name := range t.names() {
		t.values[i] = name
	}
	return nil
}

// left says how many keys the trips carried that have left.
func (w *wire) left() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Trim(fmt.Sprint(w.log), "[]")
}

// land lets the trip in that left first.
func (w *wire) land(err error) {
	w.mu.Lock()
	landed := w.out[0]
	w.out = w.out[1:]
	w.mu.Unlock()
	landed <- err
}

func (w *wire) landAll() {
	for range tripsInFlight * 100 {
		synctest.Wait()
		w.mu.Lock()
		n := len(w.out)
		w.mu.Unlock()
		if n == 0 {
			return
		}
		w.land(nil)
	}
}

// onWire gives f a node whose trips the wire carries, in a bubble.
func onWire(t *testing.T, f func(t *testing.T, n *node, w *wire, get func(key string))) {
	synctest.Test(t, func(t *testing.T) {
		c := open[string](t, redistest.Fake(t).Client(t), func(o *Options) { o.RedisTimeout, o.LeaseTTL = time.Minute, time.Hour })
		w := &wire{}
		n := c.view.nodes.single
		n.fly = w.fly
		var wg sync.WaitGroup
		f(t, n, w, func(key string) {
			wg.Go(func() {
				if v, found, err := n.get(t.Context(), key, false); v != key || !found || err != nil {
					t.Errorf("%s: got %q, %v, %v", key, v, found, err)
				}
			})
			synctest.Wait()
		})
		w.landAll()
		wg.Wait()
	})
}

// A trip leaves alone at once, and beside others when it has half as many keys as they carry.
func TestATripLeavesWhenItIsWorthIt(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		for i := range 20 {
			get(strconv.Itoa(i))
		}
		want(t, "trips", w.left(), "1 1 1 2 3 4 6") // 2 gather, since 18 are out
		w.land(nil)                                 // 17
		w.land(nil)                                 // 16
		get("20")
		want(t, "trips", w.left(), "1 1 1 2 3 4 6")
		w.landAll()
		want(t, "trips", w.left(), "1 1 1 2 3 4 6 3")
	})
}

// A full trip leaves beside others, as many as may.
func TestFullTripsLeave(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		n.size = tripBytes // one to a trip
		for i := range tripsInFlight + 3 {
			get(strconv.Itoa(i))
		}
		want(t, "trips", w.left(), "1 1 1 1 1 1 1 1")
		w.land(nil)
		want(t, "trips", w.left(), "1 1 1 1 1 1 1 1 1")
	})
}

// Full trips that gathered before a flusher came all leave.
func TestAllThatMayLeaveDo(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		n.size = tripBytes
		n.called = true // as if one were about to come
		for i := range 3 {
			get(strconv.Itoa(i))
		}
		want(t, "trips", w.left(), "")
		n.mu.Lock()
		n.called = false
		n.callLocked()
		n.mu.Unlock()
		want(t, "trips", w.left(), "1 1 1")
	})
}

// A trip that waited for one that was given up leaves then.
func TestATripThatIsGivenUpHoldsUpNobody(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		begun := time.Now()
		n.called = true
		for i := range 10 {
			go func() { _, _, _ = n.get(t.Context(), strconv.Itoa(i), false) }()
		}
		synctest.Wait()
		n.mu.Lock()
		n.called = false
		n.callLocked()
		n.mu.Unlock()
		time.Sleep(n.timeout / 2)
		for i := range 6 {
			get("more" + strconv.Itoa(i))
		}
		want(t, "trips", w.left(), "10 5")
		w.mu.Lock()
		more := w.out[1]
		w.out = w.out[:1]
		w.mu.Unlock()
		more <- nil // a sign of life, so that what waits is not turned away
		want(t, "trips", w.left(), "10 5")
		time.Sleep(time.Until(begun.Add(n.timeout)))
		want(t, "trips", w.left(), "10 5 1")
	})
}

// Callers that are about to ask board the trip that may leave.
func TestWhoComesTogetherLeavesTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that it is known who is about to
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		get("first")
		w.land(nil) // its flusher waits for work
		const callers = 100
		together := make(chan struct{})
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				<-together
				_, _, _ = n.get(t.Context(), strconv.Itoa(i), false)
			})
		}
		synctest.Wait()
		close(together)
		want(t, "trips", w.left(), "1 100")
		w.landAll()
		wg.Wait()
	})
}

// On a client that ends calls at their deadline a lone caller goes itself.
func TestALoneCallerGoesItself(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		n.obeys = true
		get("first")
		want(t, "flushers", n.flushers, 0)
		get("beside")
		get("beside too")
		want(t, "trips", w.left(), "1 1 1")
		w.landAll()
		n.called = true // as if a flusher were about to come
		for _, key := range []string{"a", "b", "c"} {
			get(key)
		}
		want(t, "trips", w.left(), "1 1 1")
		n.mu.Lock()
		n.called = false
		n.callLocked()
		n.mu.Unlock()
		want(t, "trips", w.left(), "1 1 1 3")
		want(t, "flushers", n.flushers, 1)
	})
}

// Those who ask while a caller makes its trip leave when it is back.
func TestACallersTripLetsTheNextLeave(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		n.obeys = true
		for i := range 4 {
			get(strconv.Itoa(i))
		}
		want(t, "trips", w.left(), "1 1 1") // one waits, since three are out
		w.land(nil)
		want(t, "trips", w.left(), "1 1 1 1")
	})
}

// Callers make the trips of large values, as many as there are.
func TestLargeValuesWaitForNoFlusher(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		n.obeys, n.size = true, tripBytes
		for i := range 2 * tripsInFlight {
			get(strconv.Itoa(i))
		}
		want(t, "trips", len(strings.Fields(w.left())), 2*tripsInFlight)
		want(t, "flushers", n.flushers, 0)
	})
}

// A caller that has less time than its passengers does not make their trip, and leaves at its own deadline.
func TestWhoHasLittleTimeDoesNotGoItself(t *testing.T) {
	onWire(t, func(t *testing.T, n *node, w *wire, get func(string)) {
		n.obeys = true
		ctx, cancel := context.WithTimeout(t.Context(), n.timeout/2)
		defer cancel()
		begun := time.Now()
		if _, _, err := n.get(ctx, "key", false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		want(t, "waited", time.Since(begun), n.timeout/2)
	})
}

// The trip that a caller makes is its own call's context: that ends when the trip is given up, and on Close.
func TestACallersTripEnds(t *testing.T) {
	for name, end := range map[string]func(c *Cache[string]){
		"given up": func(c *Cache[string]) { time.Sleep(testTimeout) },
		"close":    func(c *Cache[string]) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := open[string](t, redistest.Fake(t).Client(t))
				n := c.view.nodes.single
				n.obeys = true
				n.fly = func(ctx context.Context, _ *trip) error {
					want(t, "err", ctx.Err(), nil)
					if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != testTimeout {
						t.Errorf("deadline %v, %v", deadline, ok)
					}
					<-ctx.Done()
					if ctx.Err() == nil {
						t.Error("the call's context has no error")
					}
					return ctx.Err()
				}
				failed := make(chan error)
				go func() {
					_, _, err := n.get(t.Context(), "key", false)
					failed <- err
				}()
				synctest.Wait()
				end(c)
				if err := <-failed; err == nil {
					t.Error("no error")
				}
			})
		})
	}
}

// Nobody waits for a trip that never leaves: a bubble ends with a deadlock when somebody does.
func TestNoReadIsForgotten(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { readAtRandom(t, seed) })
		})
	}
}

func readAtRandom(t *testing.T, seed uint64) {
	long := strings.Repeat("x", 1<<17)
	c := open[string](t, redistest.Fake(t).Client(t))
	n := c.view.nodes.single
	n.obeys = seed%2 == 1 // then callers make trips themselves
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex // guards random
	below := func(limit int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(limit)
	}
	n.fly = func(_ context.Context, t *trip) error {
		time.Sleep(time.Duration(below(3)) * time.Millisecond)
		switch below(60) {
		case 0:
			return errors.New("ERR refused")
		case 1:
			time.Sleep(2 * testTimeout) // given up
		case 2:
			return tasks.TimeoutError{}
		}
		t.values = make([]any, len(t.names()))
		for i, name := range t.names() {
			if below(2) == 0 {
				t.values[i] = name.(string) + long[:below(len(long))]
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for range 1 + below(100) {
		wg.Go(func() {
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+below(500))*time.Millisecond)
				key := strconv.Itoa(below(1 + below(100)))
				if v, _, err := n.get(ctx, key, below(2) == 0); err == nil && v != "" && !strings.HasPrefix(v, key) {
					t.Errorf("%s: got %.10q", key, v)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute) // callers left before their trips were back
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.places) != 0 || len(n.gathering) != 0 || n.keysOut != 0 || len(n.out) != 0 || n.called || n.idle != n.flushers {
		t.Errorf("%d places, %d gather, %d keys and %d trips out, called %v, %d of %d flushers idle",
			len(n.places), len(n.gathering), n.keysOut, len(n.out), n.called, n.idle, n.flushers)
	}
}
