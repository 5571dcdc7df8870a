package bloom

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"time"
)

var (
	// ErrSuperseded says that a [Filter.Rebuild] was given up, since another one has begun or Redis was emptied.
	ErrSuperseded = errors.New("bloom: the rebuild was superseded by another one, or Redis was emptied")
	// ErrShardLost says that a [Filter.Rebuild] was given up, since Redis lost a part of what it had built, by an eviction say.
	ErrShardLost = errors.New("bloom: a part of the new generation is gone from Redis")
)

var (
	errNilKeys  = errors.New("bloom: keys is nil: a sequence is required")
	errForeign  = errors.New("bloom: the filter was built by another version of this package")
	errUnsteady = errors.New("bloom: the filter is switched again and again")
)

// Keys makes a sequence that cannot fail one for [Filter.Fill] and [Filter.Rebuild]: Keys(slices.Values(ids)), say.
func Keys(keys iter.Seq[string]) iter.Seq2[string, error] {
	if keys == nil {
		return nil
	}
	return func(yield func(string, error) bool) {
		for key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Fill adds the keys of a sequence. A filter that was not built is built by it, as by [Filter.Rebuild]. progress, when it
// is not nil, is called with the number of keys so far, on the caller's goroutine. The error Is [stockade.ErrRedis], or ctx's
// cause, or the first one of keys, or one of Rebuild; Fill may be repeated.
func (f *Filter) Fill(ctx context.Context, keys iter.Seq2[string, error], progress func(n int)) error {
	s, err := f.look(ctx)
	switch {
	case err != nil:
		return err
	case s.current == nil:
		return f.Rebuild(ctx, keys, progress)
	}
	return f.addAll(ctx, s, keys, progress, nil)
}

// Rebuild builds a new generation of the filter, with the Keys and the Rate of this Filter's Options, of all the keys of a
// sequence, and puts it in the place of the current one, in one step, when it is complete. Until then the current one
// answers, and what is added meanwhile goes into both. keys must read the source after it is called for the first key:
// then a key that was written to the source before its Add is in the new generation by the one or by the other.
//
// One Rebuild at a time: the later one takes over, and the earlier returns [ErrSuperseded]; a [stockade.Locker] keeps the
// instances of a fleet apart. A Rebuild that fails, or that keys ends by an error or a panic, leaves the current generation
// in place: half of the keys would rule out the others. Redis needs room for both. Errors: ErrSuperseded, [ErrShardLost],
// one that Is [stockade.ErrRedis], ctx's cause, the first one of keys. See [Filter.Fill] for progress.
func (f *Filter) Rebuild(ctx context.Context, keys iter.Seq2[string, error], progress func(n int)) error {
	switch {
	case ctx == nil:
		return errNilContext
	case keys == nil:
		return errNilKeys
	}
	next := newGeneration(f.design, rand.Text())
	switched := false
	defer func() {
		if !switched {
			f.abandon(ctx, next)
		}
	}()
	s, err := f.move(ctx, "make", next, func(from *state) (*state, error) { return newState(from.current, next), nil })
	if err != nil {
		return err
	}
	if err := f.addAll(ctx, s, keys, progress, next); err != nil {
		return err
	}
	_, err = f.move(ctx, "need", next, func(from *state) (*state, error) {
		switch {
		case from.current.name() == next.text: // a step whose reply was lost
			return from, nil
		case from.next.name() != next.text:
			return nil, ErrSuperseded
		}
		return newState(next, nil), nil
	})
	switched = err == nil
	return err
}

// abandonTimeout bounds the removal of what a failed Rebuild has built. What it does not remove the next one does.
const abandonTimeout = 5 * time.Second

// abandon removes a generation that is not complete.
func (f *Filter) abandon(ctx context.Context, next *generation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	_, _ = f.move(ctx, "need", nil, func(from *state) (*state, error) {
		if from.next.name() != next.text {
			return nil, ErrSuperseded
		}
		return newState(from.current, nil), nil
	})
}

// addAll adds a sequence in batches; see [Filter.add] for only.
func (f *Filter) addAll(ctx context.Context, s *state, keys iter.Seq2[string, error], progress func(n int), only *generation) error {
	if keys == nil {
		return errNilKeys
	}
	n := 0
	batch := make([]string, 0, maxBatch)
	flush := func() (err error) {
		if s, err = f.add(ctx, s, batch, only); err != nil {
			return err
		}
		n += len(batch)
		batch = batch[:0]
		if progress != nil {
			progress(n)
		}
		return nil
	}
	for key, err := range keys {
		if err != nil {
			return fmt.Errorf("bloom: read the keys: %w", err)
		}
		if batch = append(batch, key); len(batch) < maxBatch {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return flush()
}

// move takes the filter to another state, which to chooses, or refuses to by an error. The shards of target are made, or
// needed, by how; those of generations that the new state does not name are removed.
func (f *Filter) move(ctx context.Context, how string, target *generation, to func(from *state) (*state, error)) (*state, error) {
	from, err := f.look(ctx)
	for range maxTurns {
		if err != nil {
			return nil, err
		}
		if from.current.isForeign() || from.next.isForeign() {
			return nil, errForeign
		}
		s, err := to(from)
		if err != nil {
			return nil, err
		}
		names := append([]string{f.stateName()}, f.shardNames(target)...)
		args := []any{from.text, s.text, len(names) - 1, how}
		for _, g := range []*generation{from.current, from.next} {
			if g.name() != s.current.name() && g.name() != s.next.name() {
				names = append(names, f.shardNames(g)...)
			}
		}
		text, answer, err := f.run(ctx, moveStep, names, args)
		switch {
		case err != nil:
			return nil, err
		case answer != "", text == s.text: // the latter when a reply was lost and the client asked again
			f.state.Store(s)
			return s, nil
		case text == from.text:
			return nil, ErrShardLost
		}
		from = f.learn(text)
	}
	return nil, errUnsteady
}

// look reads the state, by a step that knows none, so that it goes to the master.
func (f *Filter) look(ctx context.Context) (*state, error) {
	text, _, err := f.run(ctx, probeStep, []string{f.stateName()}, []any{"?", 0})
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	return f.learn(text), nil
}
