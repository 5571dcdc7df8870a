package redistest

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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTimeout is how long a server may take to answer for the first time.
const startTimeout = 10 * time.Second

// process is a redis-server child. It dies with the test binary, even when that is killed.
type process struct {
	port   int
	dir    string
	args   []string
	child  *os.Process
	exited chan struct{} // closed when the child is gone
}

// spawn starts redis-server on a port and returns when it answers.
func spawn(dir string, port int, args []string) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, append(args, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir)...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)

	p := &process{port: port, dir: dir, args: args, exited: make(chan struct{})}
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
		p.kill()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("redis-server on port %d: %w\n%s", port, err, text)
	}
	return p, nil
}

var errExited = errors.New("exited")

// await returns when the child answers: the answer names its process, for another program may own the port.
func (p *process) await() error {
	err := errors.New("no answer")
	poll(startTimeout, func() bool {
		select {
		case <-p.exited:
			err = errExited
			return true
		default:
		}
		if p.answers() {
			err = nil
			return true
		}
		return false
	})
	return err
}

func (p *process) answers() bool {
	conn, err := net.DialTimeout("tcp", p.addr(), time.Second)
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

func (p *process) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// kill ends the child with SIGKILL, which a stopped one obeys too, and returns when it is gone.
func (p *process) kill() {
	_ = p.child.Kill()
	<-p.exited
}

// freeze stops the child where it is: its sockets stay, and nothing answers.
func (p *process) freeze() error { return p.child.Signal(syscall.SIGSTOP) }

func (p *process) thaw() error { return p.child.Signal(syscall.SIGCONT) }

// volatile are the arguments of a server that writes nothing to disk.
var volatile = []string{"--save", "", "--appendonly", "no"}

// spawnFree starts redis-server on a free port.
func spawnFree(dir string, args ...string) (*process, error) {
	args = append(volatile[:len(volatile):len(volatile)], args...)
	for {
		p, err := spawn(dir, freePort(), args)
		if errors.Is(err, errExited) && strings.Contains(err.Error(), "Address already in use") {
			continue // somebody was quicker
		}
		return p, err
	}
}

// freePort finds a port that is free, and so is the port that a cluster node takes for its bus. Both are below the
// range that the kernel takes for outgoing connections, so that a server that is killed finds its port free again.
func freePort() int {
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

// needServer skips the test, loudly, on a machine without redis-server; a build server must have it.
func needServer(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err == nil {
		return
	}
	const message = "NOT TESTED on a real Redis: redis-server is not in PATH"
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name(), message)
	t.Skip(message)
}
