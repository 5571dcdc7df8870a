package wire

import (
	"context"
	"crypto/tls"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a client sends is counted, by name, whatever the client is, and what it sends to prepare is not.
func TestCounter(t *testing.T) {
	server := miniredis.RunT(t)
	want := map[string]int{"set": 1, "get": 2, "mget": 1, "eval": 1}
	long := strings.Repeat("*1\r\n$4\r\nquit\r\n", 20_000) // looks like commands, and is a value

	t.Run("go-redis", func(t *testing.T) {
		var c Counter
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: c.Dial})
		defer rdb.Close()
		pipe := rdb.Pipeline()
		pipe.Set(t.Context(), "k", long, 0)
		pipe.Get(t.Context(), "k")
		pipe.MGet(t.Context(), "k", "l", "")
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		rdb.Get(t.Context(), "absent")
		rdb.Eval(t.Context(), "return redis.call('get', KEYS[1])", []string{"k"})
		if got := c.Sent(); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		c.Reset()
		if got := c.Sent(); len(got) != 0 {
			t.Errorf("counted %v after Reset", got)
		}
	})
	t.Run("rueidis", func(t *testing.T) {
		var c Counter
		rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DialCtxFn: func(_ context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return c.Dial(t.Context(), "tcp", addr)
		}, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		defer rdb.Close()
		rdb.DoMulti(t.Context(), rdb.B().Set().Key("k").Value(long).Build(), rdb.B().Get().Key("k").Build(), rdb.B().Mget().Key("k").Build(), rdb.B().Get().Key("absent").Build())
		rdb.Do(t.Context(), rdb.B().Eval().Script("return 1").Numkeys(1).Key("k").Build())
		if got := c.Sent(); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
	})
}

func names(pieces ...string) (found []string) {
	p := parser{found: func(name string) { found = append(found, name) }}
	for _, piece := range pieces {
		p.read([]byte(piece))
	}
	return found
}

func TestParser(t *testing.T) {
	for what, test := range map[string]struct {
		sent string
		want []string
	}{
		"nothing":          {"", nil},
		"one":              {"*1\r\n$4\r\nPING\r\n", []string{"ping"}},
		"several":          {"*2\r\n$3\r\nget\r\n$1\r\nk\r\n*1\r\n$4\r\nTIME\r\n", []string{"get", "time"}},
		"an empty part":    {"*2\r\n$3\r\nget\r\n$0\r\n\r\n*1\r\n$4\r\ntime\r\n", []string{"get", "time"}},
		"a value of CRLF":  {"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\n*1\r\n$4\r\ntime\r\n", []string{"set", "time"}},
		"not all has come": {"*2\r\n$3\r\nget\r\n$10\r\nabc", []string{"get"}},
		"no name yet":      {"*2\r\n$3\r\nge", nil},
		"something else":   {"hello\r\n\r\n*x\r\n$-1\r\n*1\r\n$4\r\ntime\r\n", []string{"time"}},
	} {
		if got := names(test.sent); !slices.Equal(got, test.want) {
			t.Errorf("%s: found %q, want %q", what, got, test.want)
		}
	}
}

// However what is sent is cut into pieces, the same commands are found, and nothing breaks.
func FuzzParser(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nget\r\n$1\r\nk\r\n*1\r\n$4\r\nTIME\r\n"), uint64(1))
	f.Add([]byte("*-1\r\n$-5\r\n*999999999999\r\n$99999999999999999999\r\n"), uint64(2))
	f.Fuzz(func(t *testing.T, sent []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		var pieces []string
		for rest := string(sent); rest != ""; {
			n := 1 + random.IntN(len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if whole, cut := names(string(sent)), names(pieces...); !slices.Equal(whole, cut) {
			t.Errorf("found %q in one piece, %q in %d", whole, cut, len(pieces))
		}
	})
}
