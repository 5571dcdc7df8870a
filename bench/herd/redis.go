package herd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redisd"
)

// Redis is the server under test.
type Redis struct {
	proc     *redisd.Process      // nil: not a child of ours
	embedded *miniredis.Miniredis // nil: a real server
	addr     string
	admin    *redis.Client
}

// errNotOurs is the error of a scenario that freezes, kills or flushes its server.
var errNotOurs = errors.New("needs a redis-server of the benchmark's own: install one, and leave -redis out")

// StartRedis starts a redis-server in dir. Without one in PATH it starts a miniredis in this process.
func StartRedis(dir string) (*Redis, error) {
	if _, err := exec.LookPath("redis-server"); err == nil {
		proc, err := redisd.StartVolatile(dir)
		if err != nil {
			return nil, err
		}
		return &Redis{proc: proc, addr: proc.Addr(), admin: adminOf(proc.Addr())}, nil
	}
	embedded, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	embedded.ClockTTL(true) // keys expire as time goes by
	return &Redis{embedded: embedded, addr: embedded.Addr(), admin: adminOf(embedded.Addr())}, nil
}

// UseRedis takes a server that runs. Nothing is frozen, killed or flushed there.
func UseRedis(ctx context.Context, addr string) (*Redis, error) {
	r := &Redis{addr: addr, admin: adminOf(addr)}
	if err := r.admin.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("no Redis answers at %s: %w", addr, err), r.admin.Close())
	}
	return r, nil
}

func adminOf(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 2})
}

// Addr returns host and port.
func (r *Redis) Addr() string { return r.addr }

// Close ends the server when it is ours.
func (r *Redis) Close() {
	_ = r.admin.Close()
	switch {
	case r.proc != nil:
		r.proc.Kill()
	case r.embedded != nil:
		r.embedded.Close()
	}
}

// Freeze stops the server where it is: its connections stay, and nothing answers.
func (r *Redis) Freeze() error { return r.ours((*redisd.Process).Freeze) }

// Thaw lets a frozen server go on.
func (r *Redis) Thaw() error { return r.ours((*redisd.Process).Thaw) }

// Kill ends the server at once. Nobody listens then.
func (r *Redis) Kill() error {
	return r.ours(func(p *redisd.Process) error {
		p.Kill()
		return nil
	})
}

// Restart starts the server anew, empty, at its address: whether it was killed, is frozen or runs.
func (r *Redis) Restart() error { return r.ours((*redisd.Process).Restart) }

func (r *Redis) ours(do func(*redisd.Process) error) error {
	if r.proc == nil {
		return errNotOurs
	}
	return do(r.proc)
}

// Version says what server it is.
func (r *Redis) Version(ctx context.Context) string {
	if r.embedded != nil {
		return "miniredis, inside the benchmark's process: no redis-server is in PATH, and absolute figures say little"
	}
	info, err := r.admin.Info(ctx, "server").Result()
	if err != nil {
		return "unknown: " + err.Error()
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return "redis-server " + version
		}
	}
	return "unknown"
}

// clean empties the server when it is ours.
func (r *Redis) clean(ctx context.Context) error {
	if err := r.flush(ctx); !errors.Is(err, errNotOurs) {
		return err
	}
	return nil
}

// flush loses everything that is stored, as an operator's mistake does.
func (r *Redis) flush(ctx context.Context) error {
	if r.proc == nil && r.embedded == nil {
		return errNotOurs
	}
	return r.admin.FlushAll(ctx).Err()
}

// calls are commands that the server ran, those inside scripts too, and what time it took for them.
type calls struct {
	n      int
	micros int
}

// calls reads INFO commandstats. An embedded server has none.
func (r *Redis) calls(ctx context.Context) (calls, error) {
	if r.embedded != nil {
		return calls{}, nil
	}
	info, err := r.admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return calls{}, err
	}
	var sum calls
	for line := range strings.Lines(info) {
		name, fields, ok := strings.Cut(strings.TrimSpace(line), ":")
		name, isStat := strings.CutPrefix(name, "cmdstat_")
		if !ok || !isStat || name == "info" {
			continue
		}
		for field := range strings.SplitSeq(fields, ",") {
			key, text, _ := strings.Cut(field, "=")
			value, err := strconv.Atoi(text)
			if err != nil {
				continue // a fraction, of which none is needed
			}
			switch key {
			case "calls":
				sum.n += value
			case "usec":
				sum.micros += value
			}
		}
	}
	return sum, nil
}
