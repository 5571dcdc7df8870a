package stockade

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// BatchLoader reads many values from their source in one go. Its context is that of a [Loader], and keys are distinct. A
// key that is missing from the map does not exist. An error fails all keys; one that is a *[KeysError] only those that it
// names. It must not keep keys or the map. A key that it was not asked for is ignored, see [Ignored].
type BatchLoader[T any] func(ctx context.Context, keys []string) (map[string]T, error)

// pick is what a batch loader's end means for one key.
func pick(values map[string]any, err error, key string) (ptr any, _ error) {
	var some *KeysError
	var panicked *PanicError
	switch {
	case err == nil || err == error((*KeysError)(nil)):
	case errors.As(err, &panicked) || !errors.As(err, &some) || some == nil:
		return nil, err
	case some.Errs[key] != nil:
		return nil, some.Errs[key]
	}
	ptr, ok := values[key]
	if !ok {
		return nil, ErrNotFound
	}
	return ptr, nil
}

// GetMany is [Cache.Get] for many keys: one round trip for all that are stored (to each node), and one call of load for
// all that this process has to load. It waits for keys that are being loaded already, here or elsewhere, and shares its
// own with Get and other batches. A key that does not exist is missing from the map. When keys have failed, the map has
// the others, and the error is a *[KeysError]; it has the errors of Get, also when ctx has ended. A key may be asked for
// twice.
func (c *Cache[T]) GetMany(ctx context.Context, keys []string, load BatchLoader[T]) (map[string]T, error) {
	if err := c.view.check(ctx); err != nil {
		return nil, err
	}
	if load == nil {
		return nil, errNilLoader
	}
	values := make(map[string]T, len(keys))
	return values, c.view.readMany(ctx, keys, load.source(), func(key string, ptr any) { values[key] = unboxed[T](ptr) })
}

// readMany is [Cache.GetMany]; found is given each value that there is.
func (c *view) readMany(ctx context.Context, keys []string, load source, found func(key string, ptr any)) error {
	r := &batchRead{view: c, load: load, found: found, errs: map[string]error{}, last: map[string]*LoadError{}}
	pending := make([]string, 0, len(keys))
	seen := make(map[string]bool, len(keys))
	outer := loadingIn(ctx)
	for _, key := range keys {
		switch {
		case seen[key]:
		case outer.has(c.core, key):
			r.errs[key] = ErrReentrant
		default:
			pending = append(pending, key)
		}
		seen[key] = true
	}
	if c.opts.Observer.TraceReads {
		r.traceMany(ctx, SpanRead, slices.Clone(pending), time.Now(), func(ctx context.Context) { r.read(ctx, pending) })
	} else {
		r.read(ctx, pending)
	}
	return r.failure()
}

// batchRead is one call of GetMany.
type batchRead struct {
	*view
	load   source // a BatchLoader
	found  func(key string, ptr any)
	errs   map[string]error
	last   map[string]*LoadError // of flights whose load began before this call
	shared []context.Context     // of the calls that began flights which this one has joined; only for Trace
}

// failure is the error of the call.
func (r *batchRead) failure() error {
	if len(r.errs) == 0 {
		return nil
	}
	return &KeysError{Errs: r.errs}
}

// read is the path of a read.
func (r *batchRead) read(ctx context.Context, keys []string) {
	var begun time.Time
	if r.opts.Observer.Trace != nil {
		begun = time.Now()
	}
	missing := r.seek(ctx, keys)
	if len(missing) == 0 {
		return
	}
	r.stats.misses.Add(uint64(len(missing)))
	if r.opts.Observer.Trace == nil {
		r.miss(ctx, missing)
		return
	}
	keys = make([]string, len(missing))
	for i, m := range missing {
		keys[i] = m.key
	}
	r.traceMany(ctx, SpanMiss, keys, begun, func(ctx context.Context) { r.miss(ctx, missing) })
}

// miss gets what is missing from flights.
func (r *batchRead) miss(ctx context.Context, missing []miss) {
	for len(missing) > 0 {
		missing = r.seek(ctx, r.joinMany(ctx, missing))
	}
}

// put takes up what one key has come to.
func (r *batchRead) put(key string, e boxed, err error) {
	switch {
	case err == nil:
		r.found(key, e.Value)
	case !isAbsent(err):
		r.errs[key] = err
	}
}

// isAbsent reports whether an error says that the key does not exist. A loader that panics with such an error says nothing.
func isAbsent(err error) bool {
	_, failed := err.(*LoadError)
	return !failed && errors.Is(err, ErrNotFound)
}

// seek looks for what can be served, and returns the keys that are missing.
func (r *batchRead) seek(ctx context.Context, keys []string) []miss {
	missing := make([]miss, 0, len(keys))
	var toLook []string
	var old []miss // to be refreshed
	for _, key := range keys {
		if held, now := r.local.get(key); held != nil {
			saw := held.sight(now)
			renew, err := r.serveLocal(held, now)
			if renew {
				old = append(old, miss{key, saw})
			}
			var e boxed
			if err == nil {
				e = r.lend(&saw)
			}
			r.put(key, e, err)
		} else if r.filling.has(key) {
			missing = append(missing, miss{key: key})
		} else {
			toLook = append(toLook, key)
		}
	}
	for i, l := range r.lookMany(ctx, toLook) {
		key, saw := toLook[i], l.sight
		if l.err != nil {
			if err := ended(ctx, l.err); err != nil {
				r.errs[key] = err
			} else if e, err, ok := r.recall(key); ok {
				r.put(key, r.share(e), err)
			} else {
				missing = append(missing, miss{key: key})
			}
			continue
		}
		e, renew, found, err := r.serve(&saw)
		if !found {
			missing = append(missing, miss{key, saw})
			continue
		}
		if renew {
			old = append(old, miss{key, saw})
		}
		r.put(key, e, err)
	}
	r.refreshMany(ctx, r.policy, r.load, old)
	return missing
}

// miss is a key with what was seen of it, which is missing or to be refreshed.
type miss struct {
	key string
	saw sight
}

// joinMany waits for the flights of keys. Those that have none are one batch. It returns the keys that have to go round
// again.
func (r *batchRead) joinMany(ctx context.Context, missing []miss) (again []string) {
	number := r.seq.Add(1)
	b := &batch{core: r.core, load: r.load, caller: ctx}
	nested := loadingIn(ctx).in(r.core)
	type boarded struct {
		*flight
		landed <-chan singleflight.Result
		mine   bool
	}
	all := make([]boarded, len(missing))
	for i, m := range missing {
		f, landed, mine := r.filling.claim(m.key, func() *flight {
			f := r.newFlight(ctx, m.key, r.policy, r.load, m.saw)
			f.nested, f.guard = nested, r.opts.Guard != nil
			f.verdict = make(chan *outcome, 1)
			return f
		})
		if all[i] = (boarded{f, landed, mine}); mine {
			b.flights = append(b.flights, f)
		}
	}
	if len(b.flights) > 0 && !r.work.Run(b.fill) {
		for _, f := range b.flights {
			f.verdict <- f.failed(ErrClosed)
		}
	}
	for _, f := range all {
		o, err := f.await(ctx, number, f.landed, f.mine)
		if !f.mine && r.opts.Observer.Trace != nil {
			r.shared = append(r.shared, f.caller)
		}
		switch {
		case err != nil:
			r.errs[f.key] = err // the cause of ctx may be anything
		case o.fits:
			if !o.mine {
				r.stats.joined.Add(1)
			}
			e, err := r.answer(o, r.last[f.key])
			r.put(f.key, e, err)
		default:
			r.last[f.key] = asLoadError(o.err)
			again = append(again, f.key)
		}
	}
	return again
}

// looked is what look has for one of many keys.
type looked struct {
	sight
	err error
}

// lookMany is look for many keys: a trip for all of a node.
func (c *core) lookMany(ctx context.Context, keys []string) []looked {
	list := make([]looked, len(keys))
	names := make([]string, len(keys))
	groups := c.byNode(ctx, len(keys), func(i int) string {
		names[i] = keyName(c.opts.Prefix, 'v', keys[i])
		return names[i]
	}, func(i int, err error) { list[i].err = err })
	each(groups, func(n *node, group []int) {
		asked := make([]string, len(group))
		for j, i := range group {
			asked[j] = names[i]
		}
		number := c.asks()
		replies := n.getMany(ctx, asked)
		for j, i := range group {
			if list[i].err = replies[j].err; list[i].err != nil {
				continue
			}
			if !replies[j].found {
				c.local.gone(keys[i], number)
				continue
			}
			list[i].err = c.took(n, keys[i], replies[j].value, number, &list[i].sight)
		}
	})
	return list
}

// byNode groups 0…count−1 by the nodes that have the names; failed is told of those whose node is not known.
func (c *core) byNode(ctx context.Context, count int, name func(int) string, failed func(int, error)) map[*node][]int {
	groups := map[*node][]int{}
	var unknown error // no node is: to ask for each name would take as long as for the first
	for i := range count {
		if unknown != nil {
			failed(i, unknown)
			continue
		}
		n, err := c.nodes.of(ctx, name(i))
		if err != nil {
			if failed(i, err); !c.nodes.known.Load() {
				unknown = err
			}
			continue
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

// each calls f for all nodes at once: one that is frozen must not hold up the others.
func each(groups map[*node][]int, f func(*node, []int)) {
	var wg sync.WaitGroup
	for n, group := range groups {
		if len(groups) == 1 {
			f(n, group)
			return
		}
		wg.Go(func() { f(n, group) })
	}
	wg.Wait()
}
