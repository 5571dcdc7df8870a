package herd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// childVariable tells a process that it is one of the fleet.
const childVariable = "STOCKADE_BENCH_PROCESS"

// IsProcess reports whether this process was started as one of a fleet: it is to call [Serve] and nothing else.
func IsProcess() bool { return os.Getenv(childVariable) != "" }

// goodbye is how long a process may take to end by itself.
const goodbye = 3 * time.Second

// Process is one instance of a service: a child of the benchmark that has one contestant.
type Process struct {
	cmd      *exec.Cmd
	rpc      *rpc.Client
	said     *tail  // on stderr
	settings string // of its contestant
	exited   chan struct{}
}

// startProcess starts this program once more and has it open a contestant.
func startProcess(ctx context.Context, s Setup) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self), said: &tail{}, exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"=1")
	p.cmd.Stderr = p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the benchmark, which ends its processes itself
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.rpc = rpc.NewClient(pipes{out, in})
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	if p.settings, err = opening.on(ctx, p, s); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// pipes is a connection made of a child's standard output and input.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// kill ends the process at once, by SIGKILL, and returns when it is gone.
func (p *Process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = p.rpc.Close()
}

// stop lets the process close its contestant; one that does not end is killed.
func (p *Process) stop() {
	_ = p.rpc.Close() // its input ends
	select {
	case <-p.exited:
	case <-time.After(goodbye):
		p.kill()
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	const most = 4 << 10
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// A task is what a process can be told to do.
type task[P, R any] struct {
	name string
	do   func(ctx context.Context, w *worker, params P) (R, error)
}

// tasks are all tasks by name: a process finds there what it is told.
var tasks = map[string]func(ctx context.Context, w *worker, params []byte) ([]byte, error){}

// define adds a task, as the program starts.
func define[P, R any](name string, do func(ctx context.Context, w *worker, params P) (R, error)) task[P, R] {
	tasks[name] = func(ctx context.Context, w *worker, encoded []byte) ([]byte, error) {
		var params P
		if err := json.Unmarshal(encoded, &params); err != nil {
			return nil, err
		}
		result, err := do(ctx, w, params)
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	}
	return task[P, R]{name, do}
}

// on has a process do the task. The process ends it, too, when ctx ends.
func (t task[P, R]) on(ctx context.Context, p *Process, params P) (result R, err error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return result, err
	}
	order := Order{Task: t.name, Params: encoded}
	if deadline, ok := ctx.Deadline(); ok {
		order.Deadline = deadline
	}
	var reply []byte
	call := p.rpc.Go("Process.Do", order, &reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
	if call.Error != nil {
		if said := p.said.String(); said != "" {
			return result, fmt.Errorf("%w: %s", call.Error, said)
		}
		return result, call.Error
	}
	return result, json.Unmarshal(reply, &result)
}

// Fleet is some processes with one contestant.
type Fleet []*Process

// startFleet starts n processes side by side.
func startFleet(ctx context.Context, n int, s Setup) (Fleet, error) {
	fleet := make(Fleet, n)
	errs := make([]error, n)
	var starting sync.WaitGroup
	for i := range fleet {
		starting.Go(func() { fleet[i], errs[i] = startProcess(ctx, s) })
	}
	starting.Wait()
	if err := cmp.Or(errs...); err != nil {
		fleet.stop()
		return nil, err
	}
	return fleet, nil
}

func (f Fleet) stop() {
	var stopping sync.WaitGroup
	for _, p := range f {
		if p != nil {
			stopping.Go(p.stop)
		}
	}
	stopping.Wait()
}

// onAll has all processes do the task at the same time.
func (t task[P, R]) onAll(ctx context.Context, f Fleet, params func(i int) P) ([]R, error) {
	results := make([]R, len(f))
	errs := make([]error, len(f))
	var doing sync.WaitGroup
	for i, p := range f {
		doing.Go(func() { results[i], errs[i] = t.on(ctx, p, params(i)) })
	}
	doing.Wait()
	return results, errors.Join(errs...)
}

// the same parameters for every process.
func same[P any](params P) func(int) P { return func(int) P { return params } }
