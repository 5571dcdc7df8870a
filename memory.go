package stockade

import (
	"sync"
	"time"
)

const (
	// memoryTTL bounds how long a value that was loaded while Redis failed is served in this process.
	memoryTTL = time.Second
	// memorySize bounds how many are.
	memorySize = 1024
)

// memory holds what was loaded while Redis failed, so that a dead Redis costs the source one load a second for each
// key and process, and not one for each read. It is asked only while Redis fails. Safe for concurrent use.
type memory struct {
	mu      sync.Mutex
	entries map[string]remembered // guarded by mu
	epoch   uint64                // guarded by mu: grows when Redis answers again
}

type remembered struct {
	entry boxed
	err   error
	begun time.Time // of the load
	until time.Time
}

// now returns the epoch, to be handed to remember by the load that begins.
func (m *memory) now() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// recall returns what is remembered of a key.
func (m *memory) recall(key string) (e boxed, err error, ok bool) {
	m.mu.Lock()
	r, ok := m.entries[key]
	m.mu.Unlock()
	if !ok || !time.Now().Before(r.until) {
		return boxed{}, nil, false
	}
	r.entry.Source, r.entry.Age = Local, time.Since(r.begun)
	return r.entry, r.err, true
}

// remember keeps the outcome of a load that began in the given epoch: after Redis has answered again, a write may have
// been acknowledged that the load did not see.
func (m *memory) remember(key string, epoch uint64, r remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch != m.epoch {
		return
	}
	if m.entries == nil {
		m.entries = map[string]remembered{}
	}
	for k := range m.entries { // some key: a map has no order
		if len(m.entries) < memorySize {
			break
		}
		delete(m.entries, k)
	}
	m.entries[key] = r
}

// forget drops keys that were written here.
func (m *memory) forget(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		delete(m.entries, k)
	}
}

// clear drops all, when Redis answers again.
func (m *memory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.entries = nil
}
