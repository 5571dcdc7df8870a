package stockade

import (
	"math"
	"strings"
	"time"
)

// Policy is the part of [Options] that a view may change, see [Cache.With]. A zero field means the parent's; negative
// means off for Jitter, StaleFor, KeepFor, EarlyRefresh and AbsentTTL.
type Policy struct {
	TTL               time.Duration
	Jitter            float64
	StaleFor, KeepFor time.Duration
	EarlyRefresh      float64
	AbsentTTL         time.Duration
}

// RedisFailure is what a read does when Redis fails.
type RedisFailure uint8

const (
	LoadLocally RedisFailure = iota // run the loader: one load a key and process, bounded by MaxLoads
	ReturnError                     // return ErrRedis
)

// Codec writes and reads values. It must be safe for concurrent use.
type Codec interface {
	Marshal(value any) ([]byte, error)
	Unmarshal(data []byte, value any) error
}

// Options configure a [Cache]. Only Prefix is required. Negative means off for Jitter, StaleFor, KeepFor, EarlyRefresh,
// AbsentTTL and FailureBackoff; elsewhere it is an error. A lifetime below 1 ms is refused.
type Options struct {
	// Prefix is the namespace of all keys in Redis, without braces. Required. When T changes so that stored values
	// no longer decode as what they were, change it.
	Prefix string
	// TTL is the upper bound of freshness. Default 5 minutes.
	TTL time.Duration
	// Jitter spreads expiries: a TTL is drawn from ((1−Jitter)·TTL, TTL]. Below 1. Default 0.1.
	Jitter float64
	// StaleFor is how long after its TTL a value is still served at once while one process refreshes it, and served
	// when the loader fails. Default 0.
	StaleFor time.Duration
	// KeepFor is how long after StaleFor an entry stays in Redis as the old of an [EntryLoader]. The cache never
	// serves it. Default 0.
	KeepFor time.Duration
	// EarlyRefresh is the β of XFetch: how eagerly a value is refreshed before it expires, in units of what its last
	// load took, in the last half of its TTL. Default 1.
	EarlyRefresh float64
	// AbsentTTL is how long "does not exist" is remembered. Default TTL/10, at most 30 s.
	AbsentTTL time.Duration
	// NotFound is the source's own error for a key that does not exist. Callers get an error that Is this one and Is
	// ErrNotFound, also later from the cache. Default ErrNotFound.
	NotFound error
	// FailureBackoff is how long after a failed load nobody in the fleet loads that key; callers get the failure, or
	// the stale value. Default 100 ms.
	FailureBackoff time.Duration
	// LoadTimeout is when a load is cancelled and its callers get ErrLoadTimeout. A wait for another's load, and one
	// for a place among MaxLoads, have a budget of the same length each. Default 30 s.
	LoadTimeout time.Duration
	// LeaseTTL is how long a crashed holder may delay others. A lease is renewed every third of it while the load
	// runs. At least 4 × RedisTimeout. Default 2 s.
	LeaseTTL time.Duration
	// MaxLoads is how many loads may run in this process at once. Beyond it callers wait their turn. Background
	// refreshes use at most a quarter and are skipped, never queued. Default 64.
	MaxLoads int
	// RedisTimeout is what one step of Redis may take, whatever the client's own options say. Default 250 ms.
	RedisTimeout time.Duration
	// WhenRedisFails says what reads do then. Default LoadLocally.
	WhenRedisFails RedisFailure
	// Local is a tier of decoded values in this process, before Redis. Default off.
	Local LocalOptions
	// Guard is asked before a missing key is loaded whether it may exist at all. Default nil: every key may.
	Guard Guard
	// Codec writes and reads values. Default msgpack, which stores exported fields only; a []byte is stored as it is.
	Codec Codec
	// Observer is told what happens. Default nothing.
	Observer Observer
}

// LocalOptions configure the local tier of a [Cache]. A hit in it asks Redis nothing and decodes nothing, and all
// callers get the SAME value: nobody may change it, unless T has a method Clone() T, which is then called for every
// caller; and no loader may change what it has returned.
//
// Invalidate, Set and Expire on one instance empty the tiers of the others within a round trip, by messages: until a
// message has come, a process may serve what it has. A process that hears no messages serves nothing that is older than
// a second without asking Redis; that its connection has died silently it notices within 6 seconds. When Redis fails,
// the tier serves what it has until TTL + StaleFor.
type LocalOptions struct {
	// Entries bounds how many entries are held, expired ones too; the least used make room. Keys of more than 1 KiB are
	// not held. Zero means that the tier is off.
	Entries int
	// TTL is how long an entry is served without asking Redis, at most: what a message that got lost may cost. Default
	// as long as it is fresh.
	TTL time.Duration
}

const (
	defaultTTL            = 5 * time.Minute
	defaultJitter         = 0.1
	defaultEarlyRefresh   = 1
	maxDefaultAbsentTTL   = 30 * time.Second
	defaultFailureBackoff = 100 * time.Millisecond
	defaultLoadTimeout    = 30 * time.Second
	defaultLeaseTTL       = 2 * time.Second
	defaultMaxLoads       = 64
	defaultRedisTimeout   = 250 * time.Millisecond
)

// complete fills in the defaults and refuses what cannot be meant.
func (o Options) complete() (Options, error) {
	if err := checkPrefix(o.Prefix); err != nil {
		return o, err
	}
	policy, err := Policy{
		TTL: defaultTTL, Jitter: defaultJitter, StaleFor: -1, KeepFor: -1, EarlyRefresh: defaultEarlyRefresh,
	}.with(o.policy())
	if err != nil {
		return o, err
	}
	o.TTL, o.Jitter, o.StaleFor, o.KeepFor = policy.TTL, policy.Jitter, policy.StaleFor, policy.KeepFor
	o.EarlyRefresh, o.AbsentTTL = policy.EarlyRefresh, policy.AbsentTTL
	if o.FailureBackoff == 0 {
		o.FailureBackoff = defaultFailureBackoff
	}
	if o.FailureBackoff > 0 && o.FailureBackoff < time.Millisecond || o.FailureBackoff > maxLifetime {
		return o, configError("FailureBackoff", o.FailureBackoff, "must be from 1 ms to 100 years, or negative for off")
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		def   time.Duration
	}{
		{"LoadTimeout", &o.LoadTimeout, defaultLoadTimeout},
		{"RedisTimeout", &o.RedisTimeout, defaultRedisTimeout},
		{"LeaseTTL", &o.LeaseTTL, defaultLeaseTTL},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < time.Millisecond || *d.value > maxLifetime {
			return o, configError(d.field, *d.value, "must be from 1 ms to 100 years")
		}
	}
	if o.LeaseTTL/4 < o.RedisTimeout {
		return o, configError("LeaseTTL", o.LeaseTTL, "must be at least 4 × RedisTimeout ("+o.RedisTimeout.String()+"), or a renewal could come too late")
	}
	if o.MaxLoads == 0 {
		o.MaxLoads = defaultMaxLoads
	}
	if o.MaxLoads < 0 {
		return o, configError("MaxLoads", o.MaxLoads, "must not be negative")
	}
	if err := o.Local.check(); err != nil {
		return o, err
	}
	if o.WhenRedisFails > ReturnError {
		return o, configError("WhenRedisFails", o.WhenRedisFails, "must be LoadLocally or ReturnError")
	}
	return o, nil
}

func (o LocalOptions) check() error {
	switch {
	case o.Entries < 0:
		return configError("Local.Entries", o.Entries, "must not be negative")
	case o.TTL != 0 && (o.TTL < time.Millisecond || o.TTL > maxLifetime):
		return configError("Local.TTL", o.TTL, "must be zero, or from 1 ms to 100 years")
	case o.TTL != 0 && o.Entries == 0:
		return configError("Local.TTL", o.TTL, "needs Local.Entries")
	}
	return nil
}

func (o Options) policy() Policy {
	return Policy{TTL: o.TTL, Jitter: o.Jitter, StaleFor: o.StaleFor, KeepFor: o.KeepFor, EarlyRefresh: o.EarlyRefresh, AbsentTTL: o.AbsentTTL}
}

// maxLifetime bounds every lifetime, so that two of them and a date fit everywhere.
const maxLifetime = 100 * 365 * 24 * time.Hour

// with returns the policy with the non-zero fields of p. In a complete policy negative is off.
func (base Policy) with(p Policy) (Policy, error) {
	if p.TTL != 0 {
		base.TTL = p.TTL
	}
	if base.TTL < time.Millisecond || base.TTL > maxLifetime {
		return base, configError("TTL", base.TTL, "must be from 1 ms to 100 years")
	}
	if p.Jitter != 0 {
		base.Jitter = p.Jitter
	}
	if math.IsNaN(base.Jitter) || base.Jitter >= 1 {
		return base, configError("Jitter", base.Jitter, "must be below 1")
	}
	if p.EarlyRefresh != 0 {
		base.EarlyRefresh = p.EarlyRefresh
	}
	if math.IsNaN(base.EarlyRefresh) || math.IsInf(base.EarlyRefresh, 1) {
		return base, configError("EarlyRefresh", base.EarlyRefresh, "must be finite")
	}
	if p.AbsentTTL == 0 && base.AbsentTTL == 0 {
		p.AbsentTTL = min(max(base.TTL/10, time.Millisecond), maxDefaultAbsentTTL)
	}
	for _, d := range []struct {
		field    string
		from, to *time.Duration
	}{
		{"StaleFor", &p.StaleFor, &base.StaleFor},
		{"KeepFor", &p.KeepFor, &base.KeepFor},
		{"AbsentTTL", &p.AbsentTTL, &base.AbsentTTL},
	} {
		if *d.from != 0 {
			*d.to = *d.from
		}
		if *d.to > 0 && *d.to < time.Millisecond || *d.to > maxLifetime {
			return base, configError(d.field, *d.to, "must be from 1 ms to 100 years, or negative for off")
		}
	}
	return base, nil
}

func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return configError("Prefix", `""`, "required")
	case strings.ContainsAny(prefix, "{}"):
		return configError("Prefix", prefix, "must have no braces: they would decide about the cluster's slot")
	}
	return nil
}
