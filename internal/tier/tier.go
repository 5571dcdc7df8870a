// Package tier holds values in this process, for as long as nobody says that they have changed.
//
// What happened first is told by numbers that grow: who fills the tier takes one before asking for the value, and who
// hears of a change takes one then. A value that was asked for before the last change is not taken.
package tier

import (
	"hash/maphash"
	"sync"

	"github.com/maypok86/otter/v2"
)

// stripes is how many groups of keys have their changes noted together: a change of one key keeps values of its group
// out that are being asked for at that moment.
const stripes = 256

// Tier is a bounded map from keys to values, which must not be changed. Safe for concurrent use.
type Tier[V any] struct {
	cache *otter.Cache[string, *item[V]]
	seed  maphash.Seed
	group [stripes]stripe
}

type item[V any] struct {
	number uint64 // taken before the value was asked for
	value  V
}

type stripe struct {
	mu      sync.Mutex // held while the tier changes
	changed uint64     // guarded by mu: the number of the last change of any key
}

// New returns a tier of at most so many entries. It starts no goroutine.
func New[V any](entries int) *Tier[V] {
	return &Tier[V]{
		cache: otter.Must(&otter.Options[string, *item[V]]{MaximumSize: entries}),
		seed:  maphash.MakeSeed(),
	}
}

// Get returns the value of a key, nil when there is none.
func (t *Tier[V]) Get(key string) *V {
	if item, ok := t.cache.GetIfPresent(key); ok {
		return &item.value
	}
	return nil
}

// Put takes a value that was asked for after number was taken, unless the key has changed since, or what is there was
// asked for later.
func (t *Tier[V]) Put(key string, value V, number uint64) {
	s := t.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if number <= s.changed {
		return
	}
	if old, ok := t.cache.GetEntryQuietly(key); ok && old.Value.number > number {
		return
	}
	t.cache.Set(key, &item[V]{number, value})
}

// Forget drops a key that has changed. number was taken when that was heard.
func (t *Tier[V]) Forget(key string, number uint64) {
	s := t.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = max(s.changed, number)
	t.cache.Invalidate(key)
}

// ForgetAll drops everything.
func (t *Tier[V]) ForgetAll(number uint64) {
	for i := range t.group {
		s := &t.group[i]
		s.mu.Lock()
		s.changed = max(s.changed, number)
		s.mu.Unlock()
	}
	t.cache.InvalidateAll() // what came since then is dropped for nothing
}

func (t *Tier[V]) stripe(key string) *stripe {
	return &t.group[maphash.String(t.seed, key)%stripes]
}
