package redistest

import (
	"bufio"
	"net"
	"slices"
	"time"
)

// link is one connection through a proxy: two goroutines that carry commands up and replies down, one by one.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	cut        bool   // guarded by Proxy.mu: both ends are closed
	pending    []bool // guarded by Proxy.mu: for each command that waits for its reply, whether that will be lost
	subscribes bool   // guarded by Proxy.mu: replies cannot be told from messages
}

var subscriptions = []string{"subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe"}

// up carries commands. One that was held is delivered though its client has hung up: the network does that too.
func (l *link) up() {
	r := bufio.NewReader(l.client)
	for {
		command, raw, err := readCommand(r)
		if err != nil {
			break
		}
		if !l.proxy.pass(l) {
			continue
		}
		l.expect(command)
		if _, err := l.server.Write(raw); err != nil {
			break
		}
	}
	// The server hears that the client has hung up, after what it sent.
	if half, ok := l.server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	} else {
		l.close()
	}
}

// down carries replies.
func (l *link) down() {
	defer l.close()
	r := bufio.NewReader(l.server)
	for {
		waited := r.Buffered() == 0 // else the reply came with the one before
		raw, push, err := readReply(r)
		if err != nil {
			return
		}
		if !push && l.lost() {
			return
		}
		if waited {
			l.delay()
		}
		if l.proxy.pass(l) {
			_, _ = l.client.Write(raw) // a client that has hung up misses it
		}
	}
}

// expect notes that a reply will come, and what is to happen to it.
func (l *link) expect(command []string) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.subscribes = l.subscribes || slices.Contains(subscriptions, command[0])
	if !l.subscribes {
		l.pending = append(l.pending, l.proxy.losesLocked(command))
	}
}

// lost reports whether the reply that has come is to be lost.
func (l *link) lost() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.subscribes || len(l.pending) == 0 {
		return false
	}
	lost := l.pending[0]
	l.pending = l.pending[1:]
	return lost
}

// delay waits for as long as the proxy delays replies, unless the link is cut.
func (l *link) delay() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.proxy.delay == 0 {
		return
	}
	due := time.Now().Add(l.proxy.delay)
	timer := time.AfterFunc(l.proxy.delay, func() { l.proxy.change(func() {}) })
	defer timer.Stop()
	for !l.cut && time.Now().Before(due) {
		l.proxy.changed.Wait()
	}
}

func (l *link) close() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.cutLocked()
}

// cutLocked closes both ends.
func (l *link) cutLocked() {
	l.cut = true
	_ = l.client.Close()
	_ = l.server.Close()
	delete(l.proxy.links, l)
	l.proxy.changed.Broadcast()
}
