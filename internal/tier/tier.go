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
type Tier struct {
	cache store
	seed  maphash.Seed
	group [stripes]stripe
}

// store is what the tier needs of otter's cache. A generic type in a field is compiled anew, with all its methods, by every
// package that sees the field; behind an interface it is compiled here alone.
type store interface {
	get(key string) *item
	peek(key string) *item // without counting as a use
	set(key string, i *item)
	drop(key string)
	clear()
}

type items struct {
	*otter.Cache[string, *item]
}

func (s items) get(key string) *item {
	i, _ := s.GetIfPresent(key)
	return i
}

func (s items) peek(key string) *item {
	e, _ := s.GetEntryQuietly(key)
	return e.Value
}

func (s items) set(key string, i *item) { s.Set(key, i) }
func (s items) drop(key string)         { s.Invalidate(key) }
func (s items) clear()                  { s.InvalidateAll() }

type item struct {
	number uint64 // taken before the value was asked for
	value  any
}

type stripe struct {
	mu      sync.Mutex // held while the tier changes
	changed uint64     // guarded by mu: the number of the last change of any key
}

// New returns a tier of at most so many entries. It starts no goroutine.
func New(entries int) *Tier {
	return &Tier{
		cache: items{otter.Must(&otter.Options[string, *item]{MaximumSize: entries})},
		seed:  maphash.MakeSeed(),
	}
}

// Get returns the value of a key, nil when there is none.
func (t *Tier) Get(key string) any {
	if i := t.cache.get(key); i != nil {
		return i.value
	}
	return nil
}

// Put takes a value that was asked for after number was taken, unless the key has changed since, or what is there was
// asked for later.
func (t *Tier) Put(key string, value any, number uint64) {
	s := t.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if number <= s.changed {
		return
	}
	if old := t.cache.peek(key); old != nil && old.number > number {
		return
	}
	t.cache.set(key, &item{number, value})
}

// Forget drops a key that has changed. number was taken when that was heard.
func (t *Tier) Forget(key string, number uint64) {
	s := t.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = max(s.changed, number)
	t.cache.drop(key)
}

// ForgetAll drops everything.
func (t *Tier) ForgetAll(number uint64) {
	for i := range t.group {
		s := &t.group[i]
		s.mu.Lock()
		s.changed = max(s.changed, number)
		s.mu.Unlock()
	}
	t.cache.clear() // what came since then is dropped for nothing
}

func (t *Tier) stripe(key string) *stripe {
	return &t.group[maphash.String(t.seed, key)%stripes]
}
