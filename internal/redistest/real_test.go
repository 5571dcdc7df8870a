package redistest

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func impatient(o *redis.Options) {
	o.ReadTimeout, o.DialTimeout, o.MaxRetries = 100*time.Millisecond, 100*time.Millisecond, -1
}

func TestFreezeThawKillRestart(t *testing.T) {
	s := NewReal(t, "--maxmemory", "77mb")
	rdb := s.Client(t, impatient)
	set(t, rdb, "k", "v")

	s.Freeze(t)
	if err := rdb.Get(t.Context(), "k").Err(); !isTimeout(err) {
		t.Errorf("GET while frozen: %v, want a time-out", err)
	}
	s.Thaw(t)
	if v, err := rdb.Get(t.Context(), "k").Result(); v != "v" || err != nil {
		t.Errorf("GET after the thaw = %q, %v, want v", v, err)
	}

	s.Kill()
	if err := rdb.Get(t.Context(), "k").Err(); err == nil {
		t.Error("GET of a killed server succeeded")
	}
	addr := s.Addr()
	s.Restart(t)
	if s.Addr() != addr {
		t.Errorf("address after the restart %s, want %s", s.Addr(), addr)
	}
	if n, err := rdb.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("DBSIZE after the restart = %d, %v, want 0", n, err)
	}
	if got := rdb.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"]; got != strconv.Itoa(77<<20) {
		t.Errorf("maxmemory after the restart = %s, want 77 MB", got)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// TestServersDieWithTheTestBinary runs this binary again, as a parent that is killed.
func TestServersDieWithTheTestBinary(t *testing.T) {
	const mark = "REDISTEST_PARENT"
	if os.Getenv(mark) != "" {
		_, _ = os.Stdout.WriteString("addr=" + NewReal(t).Addr() + "\n")
		select {}
	}
	needServer(t)
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	parent.Env = append(os.Environ(), mark+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var text, addr string
	for buf := make([]byte, 1024); addr == ""; {
		n, err := out.Read(buf)
		text += string(buf[:n])
		if _, rest, ok := strings.Cut(text, "addr="); ok && strings.Contains(rest, "\n") {
			addr, _, _ = strings.Cut(rest, "\n")
		}
		if err != nil {
			t.Fatalf("%v in %q", err, text)
		}
	}
	_ = parent.Process.Signal(syscall.SIGKILL)
	_ = parent.Wait()
	Eventually(t, 5*time.Second, "the server of a killed test binary is gone", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}
