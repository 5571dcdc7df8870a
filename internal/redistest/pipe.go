package redistest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe returns the two ends of a connection in memory. Unlike those of [net.Pipe] they never block on a write, as a
// socket with large buffers does: a server that answers a long pipeline while its client still writes must not stall.
// All waiting is durable in a synctest bubble.
func pipe() (net.Conn, net.Conn) {
	a, b := newStream(), newStream()
	return &pipeConn{in: a, out: b}, &pipeConn{in: b, out: a}
}

type pipeConn struct{ in, out *stream }

func (c *pipeConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *pipeConn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close ends both directions. What was written before still reaches the other end.
func (c *pipeConn) Close() error {
	c.out.end()
	c.in.abandon()
	return nil
}

// CloseWrite ends the direction to the other end, as that of a TCP connection does.
func (c *pipeConn) CloseWrite() error {
	c.out.end()
	return nil
}

func (c *pipeConn) LocalAddr() net.Addr  { return pipeAddr{} }
func (c *pipeConn) RemoteAddr() net.Addr { return pipeAddr{} }

func (c *pipeConn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
func (c *pipeConn) SetWriteDeadline(time.Time) error  { return nil } // a write never waits
func (c *pipeConn) SetReadDeadline(t time.Time) error { c.in.setDeadline(t); return nil }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "127.0.0.1:0" }

// stream is one direction of a pipe.
type stream struct {
	mu       sync.Mutex
	changed  *sync.Cond
	data     []byte      // guarded by mu: written and not yet read
	ended    bool        // guarded by mu: the writer has closed
	gone     bool        // guarded by mu: the reader has closed
	deadline time.Time   // guarded by mu: of reads
	timer    *time.Timer // guarded by mu: wakes a reader at the deadline
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.gone:
			return 0, net.ErrClosed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.gone {
		return 0, io.ErrClosedPipe
	}
	s.data = append(s.data, p...)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.changed.Broadcast()
}

func (s *stream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone, s.data = true, nil
	if s.timer != nil {
		s.timer.Stop()
	}
	s.changed.Broadcast()
}

func (s *stream) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if !t.IsZero() && !s.gone {
		s.timer = time.AfterFunc(time.Until(t), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
	}
}
