// Package redlock is a lock on several independent Redis servers, which a majority of them grants: it goes on while a
// minority is down. github.com/go-redsync/redsync counts the votes; the rest is that of [stockade.Locker], whose
// methods and errors are the same.
//
// It has no fences. The largest number that a majority gave out does not grow with every grant: with servers at
// 5, 9, 5, 5, 5 a holder that meets the first three gets 10, and the next one, that meets the last three, gets 6. A
// resource that must be safe from a holder that was paused needs a check that it makes itself, or the lock of one server.
//
// # What it rests on
//
// No server may forget a lock that has not expired. One that restarts empty must stay away for as long as the longest
// TTL, or keep every write on disk (appendonly yes, appendfsync always); a replica that takes over forgets, too. And
// the clocks of servers and of this process must run at about the same rate: 1 % is allowed for. A lock that is lost on
// a server stays lost there: one that is held while a majority restarts, one after another, ends.
//
// For most, a [stockade.Locker] on one master with a check of its fence is simpler and safer.
package redlock

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/held"
	"github.com/stockade-cache/stockade/internal/tasks"
)

const (
	defaultTTL          = 10 * time.Second
	defaultRedisTimeout = 250 * time.Millisecond
	// minTTL leaves room for the margin of the local validity and for a renewal.
	minTTL   = 10 * time.Millisecond
	minNodes = 3
	maxNodes = 255 // a byte of a token numbers them
)

// Options configure a [Locker]. Only Prefix is required.
type Options struct {
	// Prefix is the namespace of the locks, the same for all that exclude each other. It has no braces, and may be that
	// of a Cache or of a stockade.Locker, from whose locks these are apart.
	Prefix string
	// TTL is how long a lock outlives a holder that died: a living one renews it every third of it. At least 10 ms;
	// zero means 10 s.
	TTL time.Duration
	// RedisTimeout is how long one server may take to answer, whatever its client's own options are: past it its vote
	// is not counted. At least 1 ms and at most a quarter of TTL; zero means 250 ms, or a quarter of a TTL below 1 s.
	RedisTimeout time.Duration
	// Observer is told of locks, waits, their spans, and servers that fail. A LockEvent has no fence: it is 0.
	Observer stockade.Observer
}

// New returns a Locker on an odd number of servers, three or more, without any I/O. Every process gives the same
// servers, in any order.
//
// It refuses clients of a ring, of a cluster and of Sentinel, whose keys move or are lost when another server takes
// over, and one address given twice. That two addresses lead to one server it cannot know: such a server votes once,
// so that two holders do not meet, but fewer failures are survived than it seems. A node of a cluster refuses the keys
// of the others, so the Locker reports [stockade.ErrRedis].
func New(clients []redis.UniversalClient, opts Options) (*Locker, error) {
	if err := checkClients(clients); err != nil {
		return nil, err
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.Observer = opts.Observer.And(silent)
	l := &Locker{opts: opts, work: tasks.Group{Closed: stockade.ErrClosed}, attempts: make(chan struct{}, maxCalls)}
	for i, rdb := range clients {
		l.nodes = append(l.nodes, newNode(l, i, rdb))
	}
	l.locks = held.NewLocks(&l.work, opts.RedisTimeout, held.Errors{Lost: stockade.ErrLockLost, Unanswered: stockade.ErrRedis, Closed: stockade.ErrClosed})
	return l, nil
}

// validate checks the options and fills in the defaults.
func (o *Options) validate() error {
	if o.Prefix == "" || strings.ContainsAny(o.Prefix, "{}") {
		return configError("Options.Prefix", fmt.Sprintf("%q", o.Prefix), "want a name without braces")
	}
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.TTL < minTTL {
		return configError("Options.TTL", o.TTL, "want at least "+minTTL.String())
	}
	if o.RedisTimeout == 0 {
		o.RedisTimeout = min(defaultRedisTimeout, o.TTL/4)
	}
	if o.RedisTimeout < time.Millisecond || o.RedisTimeout > o.TTL/4 {
		return configError("Options.RedisTimeout", o.RedisTimeout, fmt.Sprintf("want 1ms to %v, a quarter of TTL", o.TTL/4))
	}
	return nil
}

func checkClients(clients []redis.UniversalClient) error {
	if n := len(clients); n < minNodes || n > maxNodes || n%2 == 0 {
		return configError("the number of clients", n, fmt.Sprintf("want an odd number from %d to %d, so that a majority exists and every server counts", minNodes, maxNodes))
	}
	seen := map[any]int{} // clients and addresses, and which client they are
	for i, rdb := range clients {
		field := fmt.Sprintf("clients[%d]", i)
		if isNil(rdb) {
			return configError(field, rdb, "a go-redis client is required")
		}
		identities := []any{}
		switch rdb := rdb.(type) {
		case *redis.Ring:
			return configError(field, "a *redis.Ring", "want a client of one server: keys must stay where they are")
		case *redis.ClusterClient:
			return configError(field, "a *redis.ClusterClient", "want a client of one server: a failover of a cluster loses locks")
		case *redis.Client:
			addr := rdb.Options().Addr
			if addr == sentinelAddr {
				return configError(field, "a client of Sentinel", "want a client of one server: a failover loses locks")
			}
			identities = append(identities, addr)
		}
		if reflect.TypeOf(rdb).Comparable() {
			identities = append(identities, rdb)
		}
		for _, id := range identities {
			if first, twice := seen[id]; twice {
				return configError(field, addrOf(rdb, i), fmt.Sprintf("want servers that fail apart, it is that of clients[%d]", first))
			}
			seen[id] = i
		}
	}
	return nil
}

// sentinelAddr is what go-redis calls the address of a client that asks Sentinel for one.
const sentinelAddr = "FailoverClient"

func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// addrOf is how events and errors call a server.
func addrOf(rdb redis.UniversalClient, i int) string {
	if client, ok := rdb.(*redis.Client); ok {
		return client.Options().Addr
	}
	return fmt.Sprintf("#%d", i)
}

// configError names the field and the value that New refuses.
func configError(field string, value any, want string) error {
	return fmt.Errorf("redlock: %s is %v: %s", field, value, want)
}
