package stockade

import "time"

// Observer is told what happens besides the answers to calls. Its functions may be nil, are called on the
// goroutine where it happens, concurrently, and must return quickly.
type Observer struct {
	Load    func(LoadEvent)    // a load of this process has ended
	Wait    func(WaitEvent)    // a wait for another process's load, or for a lock, has ended
	Refresh func(RefreshEvent) // a background refresh has ended, or was skipped
	Redis   func(RedisEvent)   // Redis failed, is misconfigured, or works again
	Lock    func(LockEvent)    // a lock was taken, lost or released
	Guard   func(GuardEvent)   // the Guard did not answer, so that the key is loaded
}

// LoadEvent tells of one run of a loader.
type LoadEvent struct {
	Key     string
	Took    time.Duration
	Err     error  // nil, an error Is ErrNotFound, or a *LoadError
	Stamp   string // of the lease, which waiters elsewhere see in WaitEvent too; empty without a lease
	Outcome Outcome
}

// Outcome says what became of a loaded value.
type Outcome uint8

const (
	Stored    Outcome = iota // in Redis
	NotStored                // the loader or a policy did not want it stored, or there was nothing to store
	Rejected                 // something newer happened to the key during the load, or the lease was lost
	Unknown                  // Redis did not answer
	Ignored                  // a BatchLoader returned a key that it was not asked for
)

func (o Outcome) String() string {
	return [...]string{"stored", "not stored", "rejected", "unknown", "ignored"}[o]
}

// WaitEvent tells of one wait for another process.
type WaitEvent struct {
	Key   string // or the name of a lock
	Took  time.Duration
	Polls int    // how often Redis was asked without having been woken
	Wakes int    // how often a message ended the wait
	Stamp string // of the lease that was waited for last
	Err   error  // what ended the wait when it was not a value or a grant
}

// RefreshEvent tells of one background refresh.
type RefreshEvent struct {
	Key     string
	Early   bool  // the value was still fresh
	Skipped bool  // it was not begun: too many loads, or another process refreshes
	Err     error // of a load that failed: callers got the older value and no error
}

// RedisEvent tells of one failure of Redis, or of its end.
type RedisEvent struct {
	Op            string // what was asked
	Node          string // whom: an address; empty where there is only one
	Err           error  // nil when the node works again
	Misconfigured bool   // Redis answered, and will keep answering so: told once for each kind
	Open          bool   // the breaker of the node is open: no call waits for it
}

// GuardEvent tells of one question to the Guard that it did not answer.
type GuardEvent struct {
	Keys []string
	Err  error // its own, a *PanicError, or a time-out
}

// LockEvent tells of one step in the life of a lock.
type LockEvent struct {
	Name  string
	Kind  LockKind
	Fence int64
	Held  time.Duration // since it was taken
	Err   error         // of a failed release
}

// LockKind is what happened to a lock.
type LockKind uint8

const (
	LockTaken LockKind = iota
	LockReleased
	LockLost
)

func (k LockKind) String() string { return [...]string{"taken", "released", "lost"}[k] }
