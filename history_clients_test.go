package stockade

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"
)

// reader is a client that reads.
type reader struct {
	h      *history
	db     *database
	plan   plan
	client int
	cache  *Cache[int64]
	rand   *rand.Rand
}

var errLoad = errors.New("the database is busy")

// before returns a random time below d.
func before(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d) + 1))
}

func (r *reader) run() {
	for range r.plan.reads {
		time.Sleep(before(r.rand, 20*time.Millisecond))
		r.h.record(r.client, func() (any, any) {
			ctx, cancel := context.Background(), func() {}
			if r.rand.IntN(8) == 0 {
				ctx, cancel = context.WithTimeout(ctx, before(r.rand, 50*time.Millisecond))
			}
			defer cancel()
			e, err := r.read(ctx)
			switch {
			case err == nil:
				return read{}, seen{e.Value, e.Source}
			case errors.Is(err, ErrNotFound):
				return read{}, seen{absent, e.Source}
			}
			return nil, nil // an error says nothing about the key
		})
	}
}

func (r *reader) read(ctx context.Context) (Entry[int64], error) {
	think, linger := before(r.rand, r.plan.load/2), before(r.rand, r.plan.load/2)
	fails, noStore, validates := r.rand.Float64() < r.plan.failures, r.rand.IntN(10) == 0, r.rand.IntN(2) == 0
	if r.rand.IntN(4) == 0 {
		return r.cache.Lookup(ctx, "k")
	}
	if r.plan.opts.WhenRedisFails == ReturnError && r.rand.IntN(3) == 0 { // for GetMany does not tell the Source
		return r.readMany(ctx, think, linger, fails)
	}
	return r.cache.Fetch(ctx, "k", func(ctx context.Context, old *Entry[int64]) (Entry[int64], error) {
		time.Sleep(think)
		v, err := r.db.read()
		time.Sleep(linger)
		tag := strconv.FormatInt(v, 10)
		switch {
		case fails:
			err = errLoad
		case err == nil && validates && old != nil && old.ETag == tag:
			err = ErrNotModified
		}
		return Entry[int64]{Value: v, ETag: tag, NoStore: noStore}, err
	})
}

// readMany reads the key in a batch with another, whose value is 0.
func (r *reader) readMany(ctx context.Context, think, linger time.Duration, fails bool) (Entry[int64], error) {
	values, err := r.cache.GetMany(ctx, []string{"other", "k"}, func(_ context.Context, keys []string) (map[string]int64, error) {
		values := map[string]int64{}
		time.Sleep(think)
		for _, key := range keys {
			if key == "other" {
				values[key] = 0
			} else if v, err := r.db.read(); err == nil {
				values[key] = v
			}
		}
		time.Sleep(linger)
		if fails {
			return values, errLoad
		}
		return values, nil
	})
	var failed *KeysError
	if errors.As(err, &failed) && failed.Errs["k"] != nil {
		return Entry[int64]{}, failed.Errs["k"]
	}
	v, ok := values["k"]
	if !ok {
		return Entry[int64]{}, ErrNotFound
	}
	e := Entry[int64]{Value: v}
	if r.plan.opts.Local.Entries > 0 {
		e.Source = Local // it may be
	}
	return e, nil
}

// writer is a client that writes the database and then tells the cache, until that acknowledges it.
type writer struct {
	h      *history
	db     *database
	plan   plan
	client int
	caches []*Cache[int64]
	rand   *rand.Rand
}

func (w *writer) run() {
	ctx := context.Background()
	for range w.plan.writes {
		time.Sleep(before(w.rand, 60*time.Millisecond))
		var version int64
		w.h.record(w.client, func() (any, any) {
			version = w.db.write()
			return written{version}, nil
		})
		time.Sleep(before(w.rand, 5*time.Millisecond))
		w.h.record(w.client, func() (any, any) {
			for {
				cache := w.caches[w.rand.IntN(len(w.caches))]
				var err error
				if w.plan.sets && !w.db.isAbsent(version) {
					err = cache.Set(ctx, "k", version)
				} else {
					err = cache.Invalidate(ctx, "k")
				}
				if err == nil {
					return acked{version}, nil
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}
