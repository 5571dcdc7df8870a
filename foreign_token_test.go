package stockade

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// I2: the token alone does not commit: a delayed copy of its acquire may have taken the lease again.
func TestOnlyTheStampOfTheGrantCommits(t *testing.T) { holds(t, commitAfterACopiedAcquire) }

func commitAfterACopiedAcquire(t *testing.T, s redistest.Server) error {
	rdb, other := s.Client(t), s.Client(t)
	seen := &recorder{}
	rdb.AddHook(seen)
	a, b := open[string](t, rdb), open[string](t, other)
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // two grants in one microsecond would have one stamp
	if err := other.Do(t.Context(), seen.last("acquire")...).Err(); err != nil {
		return err
	}
	if leases(t, s) != 1 {
		return errors.New("the copy was not granted")
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("stored: %q", v)
	}
	return nil
}

// I3: a load that has lost its lease changes nothing for the one that has it, however it ends.
func TestAForeignTokenChangesNothing(t *testing.T) { holds(t, foreignToken) }

func foreignToken(t *testing.T, s redistest.Server) error {
	for name, end := range map[string]result{
		"commit": {value: Entry[string]{Value: "old"}}, "release": {value: Entry[string]{NoStore: true}},
		"fail": {err: errSource}, "absent": {err: ErrNotFound},
	} {
		for _, absentTTL := range []time.Duration{time.Second, -1} { // drop
			rdb := s.Client(t)
			a, b := open[string](t, s.Client(t), func(o *Options) { o.AbsentTTL = absentTTL }), open[string](t, rdb)
			key := fmt.Sprint(name, absentTTL)
			lost := get(a, key)
			<-lost.began
			if err := b.Invalidate(t.Context(), key); err != nil {
				return err
			}
			holder := get(b, key)
			<-holder.began
			before := rdb.Get(t.Context(), b.view.names(key).Lease).Val()
			lost.finish(end.value, end.err)
			if after := rdb.Get(t.Context(), b.view.names(key).Lease).Val(); before == "" || after != before {
				return fmt.Errorf("%s: the holder's lease was %q and is %q", key, before, after)
			}
			if n := rdb.Exists(t.Context(), b.view.names(key).Value, b.view.names(key).Failure).Val(); n != 0 {
				return fmt.Errorf("%s: something was stored", key)
			}
			if err := expect(key, holder.finish(Entry[string]{Value: "new"}, nil), "new"); err != nil {
				return err
			}
			if v := storedIn(a, key); v != "new" {
				return fmt.Errorf("%s: stored: %q", key, v)
			}
		}
	}
	return nil
}

// I3: a load whose lease is gone does not renew the kept value either, nor end the lease of the next.
func TestAForeignTokenTouchesNothing(t *testing.T) { holds(t, foreignTouch) }

func foreignTouch(t *testing.T, s redistest.Server) error {
	rdb := s.Client(t)
	a, b := open[string](t, s.Client(t)), open[string](t, rdb)
	if err := b.With(Policy{TTL: settle / 2, KeepFor: time.Hour}).Set(t.Context(), "k", "kept"); err != nil {
		return err
	}
	time.Sleep(settle)
	lost := get(a, "k")
	<-lost.began
	if err := rdb.Del(t.Context(), b.view.names("k").Lease).Err(); err != nil { // an eviction
		return err
	}
	holder := get(b, "k")
	<-holder.began
	before := rdb.Get(t.Context(), b.view.names("k").Lease).Val()
	lost.finish(Entry[string]{}, ErrNotModified)
	if after := rdb.Get(t.Context(), b.view.names("k").Lease).Val(); before == "" || after != before {
		return fmt.Errorf("the holder's lease was %q and is %q", before, after)
	}
	if v := storedIn(b, "k"); v != ErrMiss.Error() {
		return fmt.Errorf("stored: %q", v)
	}
	return expect("the holder", holder.finish(Entry[string]{}, ErrNotModified), "kept")
}

// I3: "not modified" writes no head before a payload that is gone; the value that the loader was given is stored instead.
func TestTheHeadOfAnEvictedValueIsNotTouched(t *testing.T) { holds(t, touchOfAnEvictedValue) }

func touchOfAnEvictedValue(t *testing.T, s redistest.Server) error {
	rdb := s.Client(t)
	c := open[string](t, rdb)
	if err := c.With(Policy{TTL: settle / 2, KeepFor: time.Hour}).Set(t.Context(), "k", "kept"); err != nil {
		return err
	}
	time.Sleep(settle)
	holder := get(c, "k")
	<-holder.began
	if err := rdb.Del(t.Context(), c.view.names("k").Value).Err(); err != nil {
		return err
	}
	if err := expect("the holder", holder.finish(Entry[string]{}, ErrNotModified), "kept"); err != nil {
		return err
	}
	if v := storedIn(c, "k"); v != "kept" {
		return fmt.Errorf("stored: %q", v)
	}
	return nil
}

// I3: a renewal neither re-creates a lease that was lost nor prolongs another's.
func TestARenewalOfALostLease(t *testing.T) { holds(t, renewalOfALostLease) }

func renewalOfALostLease(t *testing.T, s redistest.Server) error {
	const lease = 480 * time.Millisecond
	short := func(o *Options) { o.RedisTimeout, o.LeaseTTL = lease/4, lease }
	a, b := open[string](t, s.Client(t), short), open[string](t, s.Client(t), short)
	p := get(a, "k")
	<-p.began
	if err := b.Invalidate(t.Context(), "k"); err != nil {
		return err
	}
	time.Sleep(lease / 2) // with a renewal in it
	if n := leases(t, s); n != 0 {
		return errors.New("the lease is back")
	}
	p.finish(Entry[string]{Value: "old"}, nil)
	return nil
}
