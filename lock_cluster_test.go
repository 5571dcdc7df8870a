package stockade_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/redistest"
)

// TestClusterLock: whatever a name is, all that belongs to it is in one slot, and an unlock wakes waiters of other nodes.
func TestClusterLock(t *testing.T) {
	servers := redistest.Cluster(t)
	a := newLocker(t, servers.Client(t), stockade.LockOptions{})
	b := newLocker(t, servers.Client(t), stockade.LockOptions{})
	names := []string{"", "{", "}", "{}", "{}x", "x{}", "}{", "{{a}}", "{a}{b}", "a{tag}b", "%", "%7B", "\xff\x00", "{\xff}", strings.Repeat("x", 1<<16)}
	for range 50 { // of braces and bytes
		name := make([]byte, rand.IntN(8))
		for i := range name {
			name[i] = "{}{}{}%a\xff\x00"[rand.IntN(10)]
		}
		names = append(names, string(name))
	}
	var callers sync.WaitGroup
	ev := &events{}
	waiter := newLocker(t, servers.Client(t), stockade.LockOptions{Observer: ev.observer()})
	for _, name := range names {
		k, err := a.Lock(t.Context(), name)
		if err != nil {
			t.Fatalf("Lock(%.20q): %v", name, err)
		}
		if _, err := b.TryLock(t.Context(), name); !errors.Is(err, stockade.ErrLocked) {
			t.Errorf("TryLock(%.20q): %v, want ErrLocked", name, err)
		}
		if err := k.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend of %.20q: %v", name, err)
		}
		callers.Go(func() {
			next, err := waiter.Lock(t.Context(), name)
			if err != nil {
				t.Errorf("Lock(%.20q): %v", name, err)
				return
			}
			if next.Fence() <= k.Fence() {
				t.Errorf("%.20q: fence %d after %d", name, next.Fence(), k.Fence())
			}
			unlock(t, next)
		})
		time.Sleep(20 * time.Millisecond) // it waits
		unlock(t, k)
		callers.Wait()
	}
	woken := 0
	for _, wait := range ev.waits {
		woken += min(wait.Wakes, 1)
	}
	t.Logf("%d of %d waiters were woken", woken, len(ev.waits))
	if woken < len(ev.waits)/2 {
		t.Errorf("%d of %d waiters were woken", woken, len(ev.waits))
	}
}

// TestClusterLockMasterKilled: the locks of a master that dies can be taken again soon after its replica has taken over,
// with larger fences (I2), and a holder knows before that that it has lost its own, if it has.
func TestClusterLockMasterKilled(t *testing.T) {
	servers := redistest.Cluster(t)
	const ttl = time.Second
	l := newLocker(t, servers.Client(t), stockade.LockOptions{TTL: ttl})
	k := tryLock(t, l)
	master := servers.Master(t, lockKey("name"))
	master.Kill()
	killed := time.Now()
	<-k.Context().Done()
	if took := time.Since(killed); took > ttl || !errors.Is(context.Cause(k.Context()), stockade.ErrLockLost) {
		t.Errorf("the context ended after %v, cause %v", took, context.Cause(k.Context()))
	}
	next, err := l.Lock(t.Context(), "name")
	took := time.Since(killed)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("taken again %v after the death of the master", took)
	if took > redistest.NodeTimeout+10*time.Second { // 2 to 4 s on a machine that is not busy
		t.Errorf("taken again only %v after the death of the master", took)
	}
	if next.Fence() <= k.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), k.Fence())
	}
	unlock(t, next)
}
