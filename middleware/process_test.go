package middleware

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The test binary starts itself as instances of a service: with this variable, an address of Redis, it serves and says where.
const processVariable = "STOCKADE_TEST_INSTANCE"

// serveProcess is the main function of an instance. Its handler takes a fifth of a second, and counts its runs in Redis by the
// path.
func serveProcess(addr string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	mw, err := New(rdb, Options{Prefix: "test"})
	if err != nil {
		panic(err)
	}
	handler := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := rdb.Incr(r.Context(), "runs:"+r.URL.Path).Err(); err != nil {
			panic(err)
		}
		time.Sleep(200 * time.Millisecond)
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, "page of "+r.URL.Path)
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("http://" + listener.Addr().String())
	panic(http.Serve(listener, handler))
}

// instance is one that has begun.
type instance struct {
	*exec.Cmd
	url string
}

func spawn(t *testing.T, addr string) *instance {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{Cmd: exec.Command(self)}
	i.Env = append(os.Environ(), processVariable+"="+addr)
	i.Stderr = os.Stderr
	out, err := i.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = i.Process.Kill()
		_ = i.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	i.url = strings.TrimSpace(line)
	return i
}

// fleet are three instances, and clients for all of them. Clients ask them under one host.
type fleet struct {
	instances []*instance
	client    *http.Client
}

func newFleet(t *testing.T, addr string) *fleet {
	f := &fleet{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	for range 3 {
		f.instances = append(f.instances, spawn(t, addr))
	}
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// ask has n clients of each instance ask for a path, and returns how many got its page.
func (f *fleet) ask(t *testing.T, n int, path string) (served int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, i := range f.instances {
		for range n {
			wg.Go(func() {
				r, err := http.NewRequest(http.MethodGet, i.url+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Host = "service.example"
				resp, err := f.client.Do(r)
				if err != nil {
					return // of an instance that was killed
				}
				defer func() { _ = resp.Body.Close() }()
				page, err := io.ReadAll(resp.Body)
				if err == nil && string(page) == "page of "+path {
					mu.Lock()
					defer mu.Unlock()
					served++
				}
			})
		}
	}
	wg.Wait()
	return served
}

func TestThreeProcessesRunOnce(t *testing.T) {
	s := redistest.Real(t)
	rdb, f := s.Client(t), newFleet(t, s.Addr())
	for n := range 5 {
		path := fmt.Sprint("/", n)
		if served := f.ask(t, 100, path); served != 300 {
			t.Errorf("%d clients of 300 got the page", served)
		}
		if runs, err := rdb.Get(t.Context(), "runs:"+path).Int(); runs != 1 || err != nil {
			t.Errorf("%d runs, %v", runs, err)
		}
	}
}

func TestTheProcessThatRunsIsKilled(t *testing.T) {
	s := redistest.Real(t)
	rdb, f := s.Client(t), newFleet(t, s.Addr())
	f.ask(t, 1, "/warm")
	doomed := &fleet{f.instances[:1], f.client}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		doomed.ask(t, 1, "/p")
	}()
	redistest.Eventually(t, 10*time.Second, "the run begins", func() bool { return rdb.Exists(t.Context(), "runs:/p").Val() == 1 })
	if err := doomed.instances[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-killed
	left := &fleet{f.instances[1:], f.client}
	begun := time.Now()
	if served := left.ask(t, 50, "/p"); served != 100 {
		t.Errorf("%d clients of 100 got the page", served)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if runs, err := rdb.Get(t.Context(), "runs:/p").Int(); runs != 2 || err != nil {
		t.Errorf("%d runs, %v: want the one that was killed and one more", runs, err)
	}
}
