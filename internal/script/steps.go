package script

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Status is the first element of a reply. A number means the same in every step that returns it.
type Status int64

// The statuses of acquire and take.
const (
	Hit     Status = 1
	Granted Status = 2
	Busy    Status = 3
	Failed  Status = 4
	TooLate Status = 5
)

// The statuses of commit, touch, drop, set.
const (
	Rejected Status = 0
	Stored   Status = 1
	Already  Status = 2
	Missing  Status = 3
)

// The statuses of renew, fail, release, unlock.
const (
	Lost Status = 0
	Held Status = 1
)

const (
	TokenLen = 16 // bytes of a token
	StampLen = 16 // digits of a stamp, a fence, a time
	// HeadLen is the length of the front of an entry that steps compare and patch by position.
	HeadLen = 57
	// MaxInline is the length up to which acquire returns the value itself.
	MaxInline = 16384
)

// Keys are the names of one key of the cache.
type Keys struct{ Value, Lease, Failure string }

// Get reads a value.
func Get(ctx context.Context, r Runner, key string) (value string, found bool, err error) {
	rep, err := get.run(ctx, r, []string{key})
	return rep.text(0), rep.status == Hit, err
}

// Acquired is the answer of [Acquire].
type Acquired struct {
	Status  Status
	Time    int64         // the server's clock, µs
	Value   string        // Hit
	Inline  bool          // Hit: Value is there; else it is large and to be read apart
	Stamp   string        // Granted: ours; Busy: the holder's; Failed: the failed load's
	PTTL    time.Duration // Busy: of the holder's lease
	Message string        // Failed
}

// Acquire asks for the lease of a key. notAfter is a server time in µs; seen is the head of the unusable or
// stale value that the caller saw, nil for none; waited is the stamp of the lease it has waited for, or "".
func Acquire(ctx context.Context, r Runner, k Keys, token string, lease time.Duration, notAfter int64, seen *string, waited string) (Acquired, error) {
	rep, err := AcquireCall(k, token, lease, notAfter, seen, waited).run(ctx, r)
	return acquired(rep, err)
}

// AcquireCall is [Acquire] as a call, for [AcquireMany].
func AcquireCall(k Keys, token string, lease time.Duration, notAfter int64, seen *string, waited string) Call {
	head := ""
	if seen != nil {
		head = "=" + *seen
	}
	return acquire.call([]string{k.Value, k.Lease, k.Failure}, token, ms(lease), notAfter, head, waited)
}

// AcquireMany sends calls of acquire in one round trip. The errors are the calls', in their order.
func AcquireMany(ctx context.Context, p Pipeliner, calls []Call) ([]Acquired, []error) {
	replies, errs := runMany(ctx, p, calls)
	list := make([]Acquired, len(calls))
	for i := range list {
		list[i], errs[i] = acquired(replies[i], errs[i])
	}
	return list, errs
}

func acquired(rep reply, err error) (Acquired, error) {
	if err != nil {
		return Acquired{}, err
	}
	a := Acquired{Status: rep.status, Time: rep.time}
	switch rep.status {
	case Hit:
		a.Value, a.Inline = rep.text(0), len(rep.rest) > 0
	case Granted:
		a.Stamp = rep.text(0)
	case Busy:
		a.Stamp, a.PTTL = rep.text(0), pttl(rep.number(1))
	case Failed:
		f := rep.text(0)
		if len(f) >= 2*StampLen {
			a.Stamp, a.Message = f[:StampLen], f[2*StampLen:]
		}
	case TooLate:
	default:
		return Acquired{}, fmt.Errorf("step acquire: %w: status %d", errReply, rep.status)
	}
	return a, nil
}

// ServerTime returns the server's clock, µs.
func (a Acquired) ServerTime() int64 { return a.Time }

// Result is the answer of the steps that return only a status.
type Result struct {
	Status Status
	Time   int64 // the server's clock, µs
}

// ServerTime returns the server's clock, µs.
func (r Result) ServerTime() int64 { return r.Time }

func result(rep reply, err error) (Result, error) {
	return Result{rep.status, rep.time}, err
}

// Do sends one call of a step that returns only a status.
func Do(ctx context.Context, r Runner, c Call) (Result, error) { return result(c.run(ctx, r)) }

// DoMany sends such calls in one round trip. The errors are the calls', in their order.
func DoMany(ctx context.Context, p Pipeliner, calls []Call) ([]Result, []error) {
	replies, errs := runMany(ctx, p, calls)
	list := make([]Result, len(calls))
	for i := range list {
		list[i], errs[i] = result(replies[i], errs[i])
	}
	return list, errs
}

// Renew moves the expiry of a lease or a lock to at least d from now: Held or Lost.
func Renew(key, token string, d time.Duration) Call {
	return renew.call([]string{key}, token, ms(d))
}

// Commit stores an entry: Stored, Already or Rejected.
func Commit(k Keys, token, stamp string, entry []byte, lifetime time.Duration, channel string) Call {
	return commit.call([]string{k.Value, k.Lease}, token, stamp, entry, ms(lifetime), channel)
}

// Touch gives the stored payload a new head: Stored, Already, Rejected or Missing.
func Touch(k Keys, token, stamp string, head []byte, lifetime time.Duration, channel, seen string) Call {
	return touch.call([]string{k.Value, k.Lease}, token, stamp, head, ms(lifetime), channel, seen)
}

// Drop removes the value: Stored or Rejected.
func Drop(k Keys, token, stamp, channel string) Call {
	return drop.call([]string{k.Value, k.Lease}, token, stamp, channel)
}

// Fail records a failed load until a server time in µs, and for those who wait for it at least a second: Held or Lost.
func Fail(k Keys, token, stamp string, until int64, message string, lifetime time.Duration, channel string) Call {
	return fail.call([]string{k.Value, k.Lease, k.Failure}, token, stamp, Stamp(until), message, ms(lifetime), channel)
}

// Release gives a lease back: Held or Lost.
func Release(k Keys, token, channel string) Call {
	return release.call([]string{k.Value, k.Lease}, token, channel)
}

// Set writes an entry through, sent once: Stored, or TooLate after notAfter (server time, µs).
func Set(ctx context.Context, r Runner, k Keys, entry []byte, lifetime time.Duration, notAfter int64, channel, origin string) (Result, error) {
	return result(set.runOnce(ctx, r, []string{k.Value, k.Lease, k.Failure}, entry, ms(lifetime), notAfter, channel, origin))
}

// Pipeliner is what the steps for many keys need of a client.
type Pipeliner interface {
	Pipeline() redis.Pipeliner
}

// Invalidate removes a key, its lease and its failure: Stored.
func Invalidate(k Keys, channel, origin string) Call {
	return invalidate.call([]string{k.Value, k.Lease, k.Failure}, channel, origin)
}

// Expire makes a key stale: Stored.
func Expire(k Keys, channel, origin string) Call {
	return expire.call([]string{k.Value, k.Lease, k.Failure}, channel, origin)
}

// Taken is the answer of [Take].
type Taken struct {
	Status Status
	Time   int64         // the server's clock, µs
	Fence  int64         // Granted
	PTTL   time.Duration // Busy: of the holder's lock
}

// ServerTime returns the server's clock, µs.
func (t Taken) ServerTime() int64 { return t.Time }

// Take asks for a lock: Granted, Busy or TooLate.
func Take(ctx context.Context, r Runner, lock, fences, token string, lifetime time.Duration, notAfter int64, waits bool) (Taken, error) {
	mark := "0"
	if waits {
		mark = "1"
	}
	rep, err := take.run(ctx, r, []string{lock, fences}, token, ms(lifetime), notAfter, mark)
	if err != nil {
		return Taken{}, err
	}
	t := Taken{Status: rep.status, Time: rep.time}
	switch rep.status {
	case Granted:
		t.Fence, err = strconv.ParseInt(rep.text(0), 10, 64)
		if err != nil {
			return Taken{}, fmt.Errorf("step take: %w: fence %q", errReply, rep.text(0))
		}
	case Busy:
		t.PTTL = pttl(rep.number(0))
	}
	return t, nil
}

// Unlock releases a lock: Held (it was released, by this request or an earlier copy of it) or Lost.
func Unlock(ctx context.Context, r Runner, lock, fences, token, channel string) (Result, error) {
	return result(unlock.run(ctx, r, []string{lock, fences}, token, channel))
}

// Stamp writes a server time in µs as steps compare it.
func Stamp(us int64) string { return fmt.Sprintf("%016d", us) }

// ms is the only way a lifetime reaches Redis: go-redis would send a [time.Duration] as nanoseconds.
func ms(d time.Duration) int64 { return d.Milliseconds() }

// pttl reads a PTTL reply. A lease in its last millisecond has 0, which must not make a waiter spin;
// one without an expiry, which no step makes, has −1: there the waiter's poll decides.
func pttl(n int64) time.Duration {
	if n < 0 {
		return time.Hour
	}
	return max(time.Duration(n)*time.Millisecond, time.Millisecond)
}
