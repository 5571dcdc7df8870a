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
	"slices"
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

// The errors of a load cross the socket as text.
var (
	errFailed = errors.New("origin: the query failed")
	errReset  = errors.New("origin: the query was dropped: what it was for is over")
)

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

	mu     sync.Mutex
	now    stretch               // guarded by mu
	counts Counts                // guarded by mu
	conns  map[net.Conn]struct{} // guarded by mu
	closed bool                  // guarded by mu
}

// stretch is a time in which loads behave alike.
type stretch struct {
	settings Settings
	places   chan struct{} // nil when nobody queues
	over     chan struct{} // closed by Reset: loads that it began are dropped
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
	o := &Origin{items: items, listener: listener, conns: map[net.Conn]struct{}{}}
	o.Reset(Settings{})
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
	o.mu.Lock()
	o.closed = true
	close(o.now.over)
	for conn := range o.conns {
		_ = conn.Close()
	}
	o.mu.Unlock()
	o.serving.Wait()
	return errors.Join(err, o.items.close())
}

// Reset begins to count anew, and drops the loads that run or queue.
func (o *Origin) Reset(s Settings) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now.over != nil {
		close(o.now.over)
	}
	o.counts = Counts{}
	o.now = stretch{settings: s, over: make(chan struct{})}
	if s.Places > 0 {
		o.now.places = make(chan struct{}, s.Places)
	}
}

// Change lets later loads take another time, or fail. The counts go on, and so do the places.
func (o *Origin) Change(load time.Duration, fail bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now.settings.Load, o.now.settings.Fail = load, fail
}

// Counts returns what has happened so far.
func (o *Origin) Counts() Counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	counts := o.counts
	counts.Begun = slices.Clone(counts.Begun)
	return counts
}

// begin counts a load.
func (o *Origin) begin(id int) stretch {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Loads++
	o.counts.Running++
	o.counts.Peak = max(o.counts.Peak, o.counts.Running)
	o.counts.Begun = append(o.counts.Begun, Begun{ID: id, At: time.Now()})
	return o.now
}

// end uncounts a load, unless another count has begun.
func (o *Origin) end(s stretch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now.over == s.over {
		o.counts.Running--
	}
}

// load reads the row first and lets its time pass then: a write meanwhile makes what was read old, as with a slow query.
func (o *Origin) load(ctx context.Context, id int) (Item, error) {
	now := o.begin(id)
	defer o.end(now)
	if now.places != nil {
		select {
		case now.places <- struct{}{}:
			defer func() { <-now.places }()
		case <-now.over:
			return Item{}, errReset
		}
	}
	took := now.settings.Load
	if spread := now.settings.Spread; spread > 0 {
		took += time.Duration((2*rand.Float64() - 1) * spread * float64(took))
	}
	passed := time.NewTimer(took)
	defer passed.Stop()
	version, err := o.items.version(ctx, id%Rows)
	if err != nil {
		return Item{}, err
	}
	select {
	case <-passed.C:
	case <-now.over:
		return Item{}, errReset
	}
	if now.settings.Fail {
		return Item{}, errFailed
	}
	return Item{ID: id, Version: version}, nil
}

// Write changes an item and returns what it is then.
func (o *Origin) Write(ctx context.Context, id int) (Item, error) {
	version, err := o.items.bump(ctx, id%Rows)
	return Item{ID: id, Version: version}, err
}
