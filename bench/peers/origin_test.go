package peers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// origin is what is loaded. Its fields change only while nobody loads.
type origin struct {
	value string
	err   error
	takes time.Duration
	loads atomic.Int64
}

func (o *origin) load(context.Context) ([]byte, error) {
	o.loads.Add(1)
	time.Sleep(o.takes)
	return []byte(o.value), o.err
}

func (o *origin) get(t *testing.T, p Peer[[]byte], key string) (string, error) {
	value, err := p.Get(t.Context(), key, o.load)
	return string(value), err
}

// want asks for a value, after which there have been so many loads.
func (o *origin) want(t *testing.T, p Peer[[]byte], key, value string, loads int64) {
	t.Helper()
	if got, err := o.get(t, p, key); err != nil || got != value {
		t.Errorf("Get of %s: %q, %v, want %q", key, got, err, value)
	}
	if n := o.loads.Load(); n != loads {
		t.Errorf("Get of %s: %d loads, want %d", key, n, loads)
	}
}

func (o *origin) wantSoon(t *testing.T, p Peer[[]byte], key, value string) {
	t.Helper()
	redistest.Eventually(t, 3*time.Second, "Get of "+key+" is "+value, func() bool {
		got, err := o.get(t, p, key)
		return err == nil && got == value
	})
}

// wantHit asks until nobody loads.
func (o *origin) wantHit(t *testing.T, p Peer[[]byte], key string) {
	t.Helper()
	redistest.Eventually(t, 3*time.Second, "a hit of "+key, func() bool {
		before := o.loads.Load()
		_, err := o.get(t, p, key)
		return err == nil && o.loads.Load() == before
	})
}
