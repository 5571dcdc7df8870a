// Package redisd runs redis-server as a child process: it needs it in PATH.
package redisd

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout is how long a server may take to answer for the first time.
const startTimeout = 10 * time.Second

// Process is a redis-server child. It dies with this process, even when that is killed.
type Process struct {
	Dir    string // its working directory: what it logs is there
	port   int
	args   []string
	child  *os.Process
	exited chan struct{} // closed when the child is gone
}

// Start starts redis-server on a port, with arguments such as "--maxmemory", "1mb", and returns when it answers.
func Start(dir string, port int, args ...string) (*Process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, append(slices.Clone(args), "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir)...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)

	p := &Process{Dir: dir, port: port, args: args, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.exited)
		// The kernel ties the death signal to the thread that forked, so that thread stays for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.child = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if err := p.await(); err != nil {
		p.Kill()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("redis-server on port %d: %w\n%s", port, err, text)
	}
	return p, nil
}

var errExited = errors.New("exited")

// await returns when the child answers: the answer names its process, for another program may own the port.
func (p *Process) await() error {
	for start := time.Now(); time.Since(start) < startTimeout; time.Sleep(2 * time.Millisecond) {
		select {
		case <-p.exited:
			return errExited
		default:
		}
		if p.answers() {
			return nil
		}
	}
	return errors.New("no answer")
}

func (p *Process) answers() bool {
	conn, err := net.DialTimeout("tcp", p.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := fmt.Fprint(conn, "INFO server\r\nQUIT\r\n"); err != nil {
		return false
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "process_id:"+strconv.Itoa(p.child.Pid) {
			return true
		}
	}
	return false
}

// Addr returns host and port.
func (p *Process) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Kill ends the child with SIGKILL, which a stopped one obeys too, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.child.Kill()
	<-p.exited
}

// Freeze stops the child where it is: its sockets stay, and nothing answers.
func (p *Process) Freeze() error { return p.child.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen child go on. It then answers what came meanwhile.
func (p *Process) Thaw() error { return p.child.Signal(syscall.SIGCONT) }

// Restart starts the process anew, empty, on the same port; it is killed first when it still runs.
func (p *Process) Restart() error {
	p.Kill()
	again, err := Start(p.Dir, p.port, p.args...)
	if err != nil {
		return err
	}
	p.child, p.exited = again.child, again.exited // the address stays what it was, for those who are dialling
	return nil
}

// volatile are the arguments of a server that writes nothing to disk.
var volatile = []string{"--save", "", "--appendonly", "no"}

// StartVolatile starts a redis-server that writes nothing to disk, on a free port.
func StartVolatile(dir string, args ...string) (*Process, error) {
	args = slices.Concat(volatile, args)
	for {
		p, err := Start(dir, FreePort(), args...)
		if errors.Is(err, errExited) && strings.Contains(err.Error(), "Address already in use") {
			continue // somebody was quicker
		}
		return p, err
	}
}

// FreePort finds a port that is free, and so is the port that a cluster node takes for its bus. Both are below the
// range that the kernel takes for outgoing connections, so that a server that is killed finds its port free again.
func FreePort() int {
	for {
		port := 11000 + rand.IntN(10000)
		if isFree(port) && isFree(port+10000) {
			return port
		}
	}
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
