package redistest

import (
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy stands between clients and servers, where a network does: a client gets it as Options.Dialer. It works in a
// bubble as well as with sockets. All of it may be changed at any time, also for the connections that there are.
type Proxy struct {
	to   Dialer
	test testing.TB
	wg   sync.WaitGroup // the goroutines of the links

	mu      sync.Mutex
	changed *sync.Cond
	links   map[*link]bool // guarded by mu
	closed  bool           // guarded by mu
	refuse  bool           // guarded by mu: nobody listens
	frozen  bool           // guarded by mu: all that comes is held
	swallow bool           // guarded by mu: all that comes is lost
	delay   time.Duration  // guarded by mu: of replies
	drop    int            // guarded by mu: replies to lose
	match   Match          // guarded by mu: of the commands that lose theirs
}

// NewProxy returns a proxy before a [Server], or before the servers of a cluster.
func NewProxy(t testing.TB, to Dialer) *Proxy {
	p := &Proxy{to: to, test: t, links: map[*link]bool{}}
	p.changed = sync.NewCond(&p.mu)
	t.Cleanup(p.close)
	return p
}

// Options returns the options of a client of the [Server] behind the proxy.
func (p *Proxy) Options() *redis.Options {
	opt := p.to.(Server).Options()
	opt.Dialer = p.Dial
	return opt
}

// Client returns a client of the [Server] behind the proxy, closed when the test ends.
func (p *Proxy) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, p.Options(), change)
}

// Dial connects through the proxy.
func (p *Proxy) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	refuse := p.refuse || p.closed
	p.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	server, err := p.to.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	outer, inner := pipe()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = server.Close()
		return nil, net.ErrClosed
	}
	l := &link{proxy: p, client: inner, server: server}
	p.links[l] = true
	p.wg.Go(l.up)
	p.wg.Go(l.down)
	return outer, nil
}

// DropReplies loses the replies to the next n matching commands, and the connections with them: each was executed,
// and the client may send it again. The commands of a connection's handshake never match, nor do those on a
// connection that subscribes. A reply that is left to lose fails the test when it ends.
func (p *Proxy) DropReplies(n int, match Match) {
	p.change(func() { p.drop, p.match = n, match })
}

// Delay lets each reply come so much later.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Freeze holds whatever comes, from both sides. Connecting still works.
func (p *Proxy) Freeze() { p.change(func() { p.frozen = true }) }

// Thaw delivers what [Proxy.Freeze] held, also for clients that have hung up since.
func (p *Proxy) Thaw() { p.change(func() { p.frozen = false }) }

// Swallow loses whatever comes, from both sides, while all connections stay open: a black hole. After it ends, the
// connections of that time wait for the replies that were lost.
func (p *Proxy) Swallow(on bool) { p.change(func() { p.swallow = on }) }

// Refuse lets nobody connect, as without a listener. Connections that there are stay.
func (p *Proxy) Refuse(on bool) { p.change(func() { p.refuse = on }) }

// Cut closes all connections. What is held or under way is lost.
func (p *Proxy) Cut() {
	p.change(func() {
		for l := range p.links {
			l.cutLocked()
		}
	})
}

// Connections returns how many connections there are.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

func (p *Proxy) close() {
	p.change(func() { p.closed = true })
	p.Cut()
	p.wg.Wait()
	if p.drop > 0 {
		p.test.Errorf("replies that were not dropped: %d", p.drop)
	}
}

// pass waits until the link may deliver. It reports false when what came is lost.
func (p *Proxy) pass(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && !l.cut {
		p.changed.Wait()
	}
	return !p.swallow && !l.cut
}

// losesLocked reports whether the reply to a command will be lost.
func (p *Proxy) losesLocked(command []string) bool {
	if p.drop == 0 || slices.Contains(handshake, command[0]) || !p.match(command) {
		return false
	}
	p.drop--
	return true
}
