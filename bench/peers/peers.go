// Package peers are the contestants of the benchmark: ways to read through Redis, one small file each. All get the same
// work, and each has its own defaults but for what [Config] says.
package peers

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Config is what every contestant is told.
type Config struct {
	Redis    string        // host:port
	Prefix   string        // of all its keys
	TTL      time.Duration // how long a value is fresh
	Load     time.Duration // what a load takes, for those whose lock has to outlive it
	NoJitter bool          // all keys that are written together expire together
	Dial     Dialer        `json:"-"` // of every connection to Redis: it counts what is sent

	EarlyRefresh float64 // the β of stockade's early refreshes; zero means its default
}

// Dialer opens a connection, like that of [net.Dialer].
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Load reads a value from the origin.
type Load[T any] func(ctx context.Context) (T, error)

// Peer is a contestant in one process of a service. Its methods may be called at the same time.
type Peer[T any] interface {
	Get(ctx context.Context, key string, load Load[T]) (T, error) // reads through
	Set(ctx context.Context, key string, value T) error           // as after a load: fresh for the TTL
	Invalidate(ctx context.Context, key string) error             // after a write to the origin
	Settings() string                                             // what is not the contestant's default, for the report
	Close() error
}

// Contestant is a way to read through Redis. T is what it caches: a []byte is stored as it is, anything else as msgpack.
type Contestant[T any] struct {
	Name  string // short, in lower case: the flag's value and the label of the charts
	About string // one line for the report: what it is and how it is used
	Open  func(Config) (Peer[T], error)
}

// Open opens the contestant of that name.
func Open[T any](name string, c Config) (Peer[T], error) {
	for _, contestant := range All[T]() {
		if contestant.Name == name {
			return contestant.Open(c)
		}
	}
	return nil, fmt.Errorf("no contestant is called %q", name)
}
