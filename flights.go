package stockade

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"
)

// flights are the flights that callers join: at most one a key. Safe for concurrent use.
type flights struct {
	registry
	group singleflight.Group // has a key exactly while the registry has it
}

// claim joins the flight of a key, or starts the one that create makes. It is known at once which.
func (fs *flights) claim(key string, create func() *flight) (f *flight, landed <-chan singleflight.Result, mine bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.m[key]
	if f == nil {
		f, mine = create(), true
		fs.putLocked(key, f)
	}
	return f, fs.group.DoChan(key, func() (any, error) { return f.run(), nil }), mine
}

// remove takes a flight out, or the key's whatever it is: who comes now starts another. It reports whether it was there.
func (fs *flights) remove(key string, f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	removed := fs.removeLocked(key, f)
	if removed {
		fs.group.Forget(key)
	}
	return removed
}

// registry holds at most one flight a key. Safe for concurrent use.
type registry struct {
	count atomic.Int64 // of flights: a read that meets none takes no mutex
	mu    sync.Mutex
	m     map[string]*flight // guarded by mu
}

func (r *registry) has(key string) bool { return r.get(key) != nil }

func (r *registry) get(key string) *flight {
	if r.count.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m[key]
}

// add registers a flight, unless the key has one.
func (r *registry) add(key string, f *flight) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m[key] != nil {
		return false
	}
	r.putLocked(key, f)
	return true
}

// remove takes a flight out, when it is still the key's.
func (r *registry) remove(key string, f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(key, f)
}

func (r *registry) putLocked(key string, f *flight) {
	if r.m == nil {
		r.m = map[string]*flight{}
	}
	r.m[key] = f
	r.count.Add(1)
}

func (r *registry) removeLocked(key string, f *flight) bool {
	if f == nil {
		f = r.m[key]
	}
	if f == nil || r.m[key] != f {
		return false
	}
	delete(r.m, key)
	r.count.Add(-1)
	return true
}
