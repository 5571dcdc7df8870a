package redistest

import (
	"bufio"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestProxyIsTransparent(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		Each(t, func(t *testing.T, s Server) {
			rdb := NewProxy(t, s).Client(t, func(o *redis.Options) { o.Protocol = protocol })
			set(t, rdb, "k", "a\r\nb")
			if v, err := rdb.Get(t.Context(), "k").Result(); v != "a\r\nb" || err != nil {
				t.Errorf("GET = %q, %v", v, err)
			}
			if err := rdb.HSet(t.Context(), "h", "a", "1", "b", "2").Err(); err != nil {
				t.Error(err)
			}
			if m, err := rdb.HGetAll(t.Context(), "h").Result(); len(m) != 2 || err != nil {
				t.Errorf("HGETALL = %v, %v", m, err)
			}
			sub := rdb.Subscribe(t.Context(), "c")
			defer func() { _ = sub.Close() }()
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			rdb.Publish(t.Context(), "c", "hello")
			if msg, err := sub.ReceiveMessage(t.Context()); err != nil || msg.Payload != "hello" {
				t.Errorf("message %v, %v", msg, err)
			}
		})
	}
}

func TestDroppedRepliesAreRetried(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		p := NewProxy(t, s)
		rdb := p.Client(t)
		p.DropReplies(2, Named("incr"))
		if n, err := rdb.Incr(t.Context(), "n").Result(); n != 3 || err != nil {
			t.Errorf("INCR = %d, %v, want 3: executed three times", n, err)
		}
		p.DropReplies(1, Any)
		if n, err := rdb.Incr(t.Context(), "n").Result(); n != 5 || err != nil {
			t.Errorf("INCR = %d, %v, want 5: executed twice more", n, err)
		}
		p.DropReplies(1, func(command []string) bool { return command[0] == "incr" && command[1] == "m" })
		cmds, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			pipe.Incr(t.Context(), "n")
			pipe.Incr(t.Context(), "m")
			return nil
		})
		if err != nil || cmds[1].(*redis.IntCmd).Val() != 2 {
			t.Errorf("pipeline: %v, %v, want m = 2", cmds, err)
		}
	})
}

func TestDelayedReplies(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		p := NewProxy(t, s)
		rdb := p.Client(t)
		set(t, rdb, "k", "v")
		p.Delay(30 * time.Millisecond)
		start := time.Now()
		pipe := rdb.Pipeline()
		for range 50 {
			pipe.Get(t.Context(), "k")
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 30*time.Millisecond || d > 500*time.Millisecond {
			t.Errorf("took %v, want one delay of 30ms", d)
		}
	})
}

func TestBlackHole(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		p := NewProxy(t, s)
		rdb := p.Client(t, impatient)
		set(t, rdb, "k", "v")
		p.Swallow(true)
		if err := rdb.Incr(t.Context(), "n").Err(); !isTimeout(err) {
			t.Errorf("INCR into the black hole: %v, want a time-out", err)
		}
		p.Swallow(false)
		if n, err := rdb.Incr(t.Context(), "n").Result(); n != 1 || err != nil {
			t.Errorf("INCR = %d, %v, want 1: the first was lost", n, err)
		}
	})
}

func TestFrozenProxyDeliversLater(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		p := NewProxy(t, s)
		rdb, direct := p.Client(t, impatient), s.Client(t)
		set(t, rdb, "k", "v")
		p.Freeze()
		if err := rdb.Incr(t.Context(), "n").Err(); !isTimeout(err) {
			t.Errorf("INCR while frozen: %v, want a time-out", err)
		}
		if n := direct.Exists(t.Context(), "n").Val(); n != 0 {
			t.Error("INCR was delivered while frozen")
		}
		p.Thaw()
		Eventually(t, time.Second, "the held INCR of a client that has hung up is executed", func() bool {
			return direct.Get(t.Context(), "n").Val() == "1"
		})
	})
}

func TestCutAndRefuse(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		p := NewProxy(t, s)
		rdb := p.Client(t, impatient)
		set(t, rdb, "k", "v")
		p.Refuse(true)
		if err := rdb.Get(t.Context(), "k").Err(); err != nil {
			t.Errorf("GET on a connection that is there: %v", err)
		}
		p.Cut()
		Eventually(t, time.Second, "no connection is left", func() bool { return p.Connections() == 0 })
		_ = rdb.Get(t.Context(), "k") // finds its connection cut
		if err := rdb.Get(t.Context(), "k").Err(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("GET: %v, want connection refused", err)
		}
		p.Refuse(false)
		if v, err := rdb.Get(t.Context(), "k").Result(); v != "v" || err != nil {
			t.Errorf("GET after the return = %q, %v, want v", v, err)
		}
	})
}

func TestReadReply(t *testing.T) {
	for _, reply := range []string{
		"+OK\r\n", "-ERR no\r\n", ":-1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "$4\r\na\r\nb\r\n",
		"=6\r\ntxt:ab\r\n", "!3\r\nERR\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "%1\r\n+a\r\n*0\r\n", "~1\r\n:1\r\n", "|1\r\n+k\r\n+v\r\n:7\r\n", ">2\r\n+x\r\n+y\r\n",
	} {
		raw, push, err := readReply(bufio.NewReader(strings.NewReader(reply + "+next\r\n")))
		if string(raw) != reply || err != nil || push != (reply[0] == '>') {
			t.Errorf("read %q, %t, %v, want %q", raw, push, err, reply)
		}
	}
}
