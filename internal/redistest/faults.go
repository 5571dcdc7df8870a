package redistest

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Match chooses commands by their name, in lower case, and arguments.
type Match func(command []string) bool

// Any matches every command.
func Any([]string) bool { return true }

// Named matches commands of these names. A step is an "evalsha", or an "eval" when the server did not know it.
func Named(names ...string) Match {
	return func(command []string) bool { return slices.Contains(names, command[0]) }
}

// handshake are the commands with which a client begins a connection.
var handshake = []string{"hello", "auth", "client", "select", "readonly", "command"}

// Faults is a hook of a client: it counts the commands that the caller sends, and makes some of them fail. It stands
// outside the client's own retries; [Proxy] stands inside them. It overlooks the handshakes of connections.
//
// A fault that no command met fails the test when it ends. A pipeline meets one fault at most, which hits all of it.
type Faults struct {
	mu     sync.Mutex
	counts map[string]int // guarded by mu: commands by name
	faults []*fault       // guarded by mu: those that wait for a command, in the order they were made
}

type fault struct {
	what  string
	match Match
	left  int // commands that it waits for; guarded by Faults.mu
	hook  func(ctx context.Context, send func() error) error
}

var _ redis.Hook = (*Faults)(nil)

// NewFaults returns a hook for [redis.Client.AddHook] and the like, one for any number of clients.
func NewFaults(t testing.TB) *Faults {
	f := &Faults{counts: map[string]int{}}
	t.Cleanup(func() {
		if left := f.Left(); left != "" {
			t.Errorf("faults that no command met: %s", left)
		}
	})
	return f
}

// Refuse fails the next n matching commands: they are not sent.
func (f *Faults) Refuse(n int, match Match, err error) {
	f.add("refuse", n, match, func(context.Context, func() error) error { return err })
}

// LoseReply lets the next n matching commands be executed and fails them with io.EOF: their outcome is unknown.
func (f *Faults) LoseReply(n int, match Match) {
	f.add("lose reply", n, match, func(_ context.Context, send func() error) error {
		if err := send(); err != nil {
			return err
		}
		return io.EOF
	})
}

// Delay holds the next n matching commands back before they are sent, but not beyond their context.
func (f *Faults) Delay(n int, match Match, d time.Duration) {
	f.add("delay", n, match, func(ctx context.Context, send func() error) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return send()
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// Block holds the next matching command back, whatever its context says, until release is called. reached is closed
// when the command has come.
func (f *Faults) Block(match Match) (reached <-chan struct{}, release func()) {
	in, out := make(chan struct{}), make(chan struct{})
	f.add("block", 1, match, func(_ context.Context, send func() error) error {
		close(in)
		<-out
		return send()
	})
	return in, sync.OnceFunc(func() { close(out) })
}

func (f *Faults) add(what string, n int, match Match, hook func(context.Context, func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault{what, match, n, hook})
}

// Count returns how many commands of these names were sent, those in pipelines included; without names, of all.
func (f *Faults) Count(names ...string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for name, n := range f.counts {
		if len(names) == 0 || slices.Contains(names, name) {
			total += n
		}
	}
	return total
}

// Left describes the faults that wait for a command; "" when there are none.
func (f *Faults) Left() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []string
	for _, fault := range f.faults {
		left = append(left, fmt.Sprintf("%s ×%d", fault.what, fault.left))
	}
	return strings.Join(left, ", ")
}

// Clear forgets the faults that wait for a command.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// meet counts the commands and returns the first fault that one of them matches, if any.
func (f *Faults) meet(cmds ...redis.Cmder) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var met *fault
	for _, cmd := range cmds {
		if slices.Contains(handshake, cmd.Name()) {
			continue
		}
		f.counts[cmd.Name()]++
		if met == nil {
			met = f.metLocked(words(cmd))
		}
	}
	return met
}

func (f *Faults) metLocked(command []string) *fault {
	for i, fault := range f.faults {
		if fault.match(command) {
			if fault.left--; fault.left == 0 {
				f.faults = slices.Delete(f.faults, i, i+1)
			}
			return fault
		}
	}
	return nil
}

func words(cmd redis.Cmder) []string {
	var command []string
	for _, arg := range cmd.Args() {
		if b, ok := arg.([]byte); ok {
			arg = string(b)
		}
		command = append(command, fmt.Sprint(arg))
	}
	command[0] = strings.ToLower(command[0])
	return command
}

// DialHook does nothing.
func (f *Faults) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook meets single commands.
func (f *Faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fault := f.meet(cmd)
		if fault == nil {
			return next(ctx, cmd)
		}
		err := fault.hook(ctx, func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook meets pipelines and transactions.
func (f *Faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		fault := f.meet(cmds...)
		if fault == nil {
			return next(ctx, cmds)
		}
		var sent error
		err := fault.hook(ctx, func() error { sent = next(ctx, cmds); return sent })
		if err != sent { //nolint:errorlint // the very error: each command has its own already
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}
