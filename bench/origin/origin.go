// Package origin is the database of the benchmark, with what a benchmark needs of one: it counts every load and when it
// began, and a load takes as long as it is told to. The rows are in a real SQLite file or in PostgreSQL. One process owns
// it and serves the others over a socket, so that its counts are exact even when a process that loads is killed.
package origin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/rpc"
	"sync"
	"time"
)

// Rows is how many items there are: their ids are 0 to Rows-1. An id beyond them stands for the row of its remainder.
const Rows = 10_000

// Item is what a load reads.
type Item struct {
	ID      int
	Version int // grows with every write
}

// headSize is what an item takes at least when it is encoded.
const headSize = 16

// Encode returns an item as size bytes or a few more: the least is 16.
func (i Item) Encode(size int) []byte {
	b := make([]byte, max(size, headSize))
	binary.BigEndian.PutUint64(b, uint64(i.ID))
	binary.BigEndian.PutUint64(b[8:], uint64(i.Version))
	for n := headSize; n < len(b); n++ {
		b[n] = byte(n + i.ID)
	}
	return b
}

// Decode reads the front of what Encode returned.
func Decode(b []byte) (Item, error) {
	if len(b) < headSize {
		return Item{}, fmt.Errorf("an item of %d bytes: want at least %d", len(b), headSize)
	}
	return Item{ID: int(binary.BigEndian.Uint64(b)), Version: int(binary.BigEndian.Uint64(b[8:]))}, nil
}

// Settings is how the origin behaves.
type Settings struct {
	Load   time.Duration // what a load takes
	Spread float64       // by how much of Load a load is longer or shorter, at random: 0.5 is ± 50 %
	Places int           // how many loads run at once, the others queue in their order; zero means all
	Fail   bool          // a load fails when its time is over
}

var errGivenUp = errors.New("origin: the query was given up")

// ErrFailed is the error of a load that was told to fail. It crosses the socket as text.
var ErrFailed = errors.New("origin: the query failed")

// Counts is what happened since [Origin.Reset].
type Counts struct {
	Loads   int // begun
	Running int
	Peak    int // the most that ran or queued at once
	Begun   []Begun
}

// Begun is the beginning of a load.
type Begun struct {
	ID int
	At time.Time
}

// Origin is the database and its server.
type Origin struct {
	items    items
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	settings Settings              // guarded by mu
	places   chan struct{}         // guarded by mu; nil when nobody queues
	counts   Counts                // guarded by mu
	giveUp   chan struct{}         // guarded by mu; closed to end the loads that run
	conns    map[net.Conn]struct{} // guarded by mu
	closed   bool                  // guarded by mu
}

// Open creates the items and listens on a port of the loopback. An empty dsn means a SQLite file in dir.
func Open(ctx context.Context, dsn, dir string) (*Origin, error) {
	items, err := openItems(ctx, dsn, dir)
	if err != nil {
		return nil, fmt.Errorf("origin: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, items.close())
	}
	o := &Origin{items: items, listener: listener, giveUp: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	server := rpc.NewServer()
	if err := server.RegisterName("Origin", &service{o}); err != nil {
		return nil, errors.Join(err, listener.Close(), items.close())
	}
	o.serving.Go(func() { o.accept(server) })
	return o, nil
}

func (o *Origin) accept(server *rpc.Server) {
	for {
		conn, err := o.listener.Accept()
		if err != nil {
			return // it is closed
		}
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			_ = conn.Close()
			return
		}
		o.conns[conn] = struct{}{}
		o.mu.Unlock()
		o.serving.Go(func() {
			server.ServeConn(conn)
			o.mu.Lock()
			defer o.mu.Unlock()
			delete(o.conns, conn)
		})
	}
}

// Addr is where the origin listens.
func (o *Origin) Addr() string { return o.listener.Addr().String() }

// Name says what database it is.
func (o *Origin) Name() string { return o.items.name() }

// Close ends the server and closes the database.
func (o *Origin) Close() error {
	err := o.listener.Close()
	o.GiveUp()
	o.mu.Lock()
	o.closed = true
	for conn := range o.conns {
		_ = conn.Close()
	}
	o.mu.Unlock()
	o.serving.Wait()
	return errors.Join(err, o.items.close())
}

// Reset begins to count anew, and returns what happened before. Loads that still run keep their place and are not counted
// again.
func (o *Origin) Reset(s Settings) Counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.counts
	o.counts = Counts{Running: before.Running, Peak: before.Running}
	o.changeLocked(s)
	return before
}

// GiveUp ends the loads that run, with an error: whoever wanted them is gone.
func (o *Origin) GiveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.giveUp)
	o.giveUp = make(chan struct{})
}

// Change lets later loads behave otherwise. The counts go on.
func (o *Origin) Change(s Settings) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changeLocked(s)
}

func (o *Origin) changeLocked(s Settings) {
	if s.Places != o.settings.Places {
		o.places = nil
		if s.Places > 0 {
			o.places = make(chan struct{}, s.Places)
		}
	}
	o.settings = s
}

// Counts returns what has happened so far.
func (o *Origin) Counts() Counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	counts := o.counts
	counts.Begun = append([]Begun(nil), counts.Begun...)
	return counts
}

// begin counts a load.
func (o *Origin) begin(id int) (s Settings, places, giveUp chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Loads++
	o.counts.Running++
	o.counts.Peak = max(o.counts.Peak, o.counts.Running)
	o.counts.Begun = append(o.counts.Begun, Begun{ID: id, At: time.Now()})
	return o.settings, o.places, o.giveUp
}

func (o *Origin) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Running--
}

// load reads the row first and lets its time pass then: a write meanwhile makes what was read old, as with a slow query.
func (o *Origin) load(ctx context.Context, id int) (Item, error) {
	settings, places, giveUp := o.begin(id)
	defer o.end()
	if places != nil {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-giveUp:
			return Item{}, errGivenUp
		}
	}
	took := settings.Load
	if settings.Spread > 0 {
		took += time.Duration((2*rand.Float64() - 1) * settings.Spread * float64(settings.Load))
	}
	over := time.NewTimer(took)
	defer over.Stop()
	version, err := o.items.version(ctx, id%Rows)
	if err != nil {
		return Item{}, err
	}
	select {
	case <-over.C:
	case <-giveUp:
		return Item{}, errGivenUp
	}
	if settings.Fail {
		return Item{}, ErrFailed
	}
	return Item{ID: id, Version: version}, nil
}

// Write changes an item and returns what it is then.
func (o *Origin) Write(ctx context.Context, id int) (Item, error) {
	version, err := o.items.bump(ctx, id%Rows)
	return Item{ID: id, Version: version}, err
}
