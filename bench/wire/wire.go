// Package wire counts the commands that a client sends to Redis, whatever client it is: by what goes over its connections.
package wire

import (
	"bytes"
	"context"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
)

// setup are the commands by which a client prepares a connection or learns about the server. They are not counted:
// how many connections a pool opens says nothing of how a cache works.
var setup = map[string]bool{
	"hello": true, "auth": true, "select": true, "client": true, "command": true, "info": true, "ping": true, "quit": true, "cluster": true, "readonly": true,
}

// Counter counts commands by name. The zero value is ready, and safe for concurrent use.
type Counter struct {
	mu   sync.Mutex
	sent map[string]int // guarded by mu
}

// Sent returns how often each command was sent.
func (c *Counter) Sent() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.sent)
}

// Reset begins anew.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = nil
}

func (c *Counter) count(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == nil {
		c.sent = map[string]int{}
	}
	c.sent[name]++
}

// Dial opens a connection whose commands are counted.
func (c *Counter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn, nil // nothing is known of what goes over it
	}
	return &counted{TCPConn: tcp, parser: parser{found: func(name string) {
		if !setup[name] {
			c.count(name)
		}
	}}}, nil
}

// counted is a connection. A client writes to it from one goroutine at a time. It has all methods of a TCP connection,
// because clients look whether an idle one is still open.
type counted struct {
	*net.TCPConn
	parser parser
}

func (c *counted) Write(b []byte) (int, error) {
	c.parser.read(b) // before it is sent: the reply may be there before Write returns
	return c.TCPConn.Write(b)
}

// parser finds the names of commands in what a client sends: arrays of bulk strings, in pieces of any size.
type parser struct {
	found func(name string)

	line  []byte // of a header, as far as it has come
	parts int    // of the command, still to come
	first bool   // the next part is the name
	name  []byte // as far as it has come; nil when a part is being skipped
	skip  int    // bytes of a part, its line end included, still to come
}

func (p *parser) read(b []byte) {
	for len(b) > 0 {
		if p.skip > 0 {
			n := min(p.skip, len(b))
			if p.first {
				p.name = append(p.name, b[:n]...)
			}
			b, p.skip = b[n:], p.skip-n
			if p.skip == 0 {
				p.endPart()
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			p.line = append(p.line, b...)
			return
		}
		p.line = append(p.line, b[:end]...)
		b = b[end+1:]
		p.header(strings.TrimSuffix(string(p.line), "\r"))
		p.line = p.line[:0]
	}
}

func (p *parser) header(line string) {
	if line == "" {
		return
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case line[0] == '*' && err == nil && p.parts == 0:
		p.parts, p.first, p.name = n, true, p.name[:0]
	case line[0] == '$' && err == nil && p.parts > 0:
		p.skip = n + 2
	}
}

func (p *parser) endPart() {
	p.parts--
	if p.first {
		p.found(strings.ToLower(strings.TrimSuffix(string(p.name), "\r\n")))
		p.first = false
	}
}
