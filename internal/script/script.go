// Package script holds the atomic steps of the cache and the lock: one Lua file each, with a header of
// its KEYS, ARGV and returns, and one typed function each, so that no caller ever builds an argument list.
//
// A step that is executed twice with the same arguments leaves the same state: every step may be repeated
// after a lost reply. Times are the server's, in µs; lifetimes are sent in ms.
package script

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var files embed.FS

// step is one Lua file.
type step struct {
	name, source, hash string
}

var (
	get        = load("get")
	acquire    = load("acquire")
	renew      = load("renew")
	commit     = load("commit")
	touch      = load("touch")
	drop       = load("drop")
	fail       = load("fail")
	release    = load("release")
	set        = load("set")
	invalidate = load("invalidate")
	expire     = load("expire")
	take       = load("take")
	unlock     = load("unlock")
)

func load(name string) *step {
	return compose(name, read("prelude"), read(name))
}

func compose(name, prelude, body string) *step {
	source := prelude + body
	sum := sha1.Sum([]byte(source))
	return &step{name: name, source: source, hash: hex.EncodeToString(sum[:])}
}

func read(name string) string {
	b, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // a file missing from the binary: the package's own tests load all of them
	}
	return string(b)
}

// Runner is what a step needs of a client.
type Runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// reply is {status, time, ...}.
type reply struct {
	status Status
	time   int64
	rest   []any
}

// Call is one step with its arguments, to be sent alone or with others.
type Call struct {
	step *step
	keys []string
	args []any
}

// Size is about how many bytes the call sends.
func (c Call) Size() int {
	size := 0
	for _, key := range c.keys {
		size += len(key)
	}
	for _, arg := range c.args {
		switch arg := arg.(type) {
		case []byte:
			size += len(arg)
		case string:
			size += len(arg)
		}
	}
	return size
}

func (s *step) call(keys []string, args ...any) Call { return Call{s, keys, args} }

func (c Call) run(ctx context.Context, r Runner) (reply, error) {
	return c.step.runAs(ctx, r, func(c *redis.Cmd) redis.Cmder { return c }, c.keys, c.args)
}

// runMany sends calls in one pipeline, and those once more with their source whose hash a server did not know. The
// errors are the calls', in their order.
func runMany(ctx context.Context, p Pipeliner, calls []Call) ([]reply, []error) {
	cmds := make([]*redis.Cmd, len(calls))
	send := func(name string, script func(*step) string, which func(error) bool) {
		pipe := p.Pipeline()
		for i, c := range calls {
			if cmds[i] == nil || which(cmds[i].Err()) {
				cmds[i] = c.step.command(ctx, name, script(c.step), c.keys, c.args)
				_ = pipe.Process(ctx, cmds[i])
			}
		}
		if pipe.Len() > 0 {
			_, _ = pipe.Exec(ctx) // each command carries its own error
		}
	}
	send("evalsha", func(s *step) string { return s.hash }, nil)
	send("eval", func(s *step) string { return s.source }, IsNoScript)
	replies, errs := make([]reply, len(calls)), make([]error, len(calls))
	for i, cmd := range cmds {
		if errs[i] = cmd.Err(); errs[i] == nil {
			replies[i], errs[i] = calls[i].step.parse(cmd)
		}
	}
	return replies, errs
}

// run sends the step by its hash and, to a server that does not have it, once more with its source.
func (s *step) run(ctx context.Context, r Runner, keys []string, args ...any) (reply, error) {
	return s.runAs(ctx, r, func(c *redis.Cmd) redis.Cmder { return c }, keys, args)
}

// runOnce is run for a client that must not repeat the command on its own.
func (s *step) runOnce(ctx context.Context, r Runner, keys []string, args ...any) (reply, error) {
	return s.runAs(ctx, r, func(c *redis.Cmd) redis.Cmder { return once{c} }, keys, args)
}

// once is a command that the client sends a single time, whatever its MaxRetries.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func (s *step) runAs(ctx context.Context, r Runner, as func(*redis.Cmd) redis.Cmder, keys []string, args []any) (reply, error) {
	cmd := s.command(ctx, "evalsha", s.hash, keys, args)
	err := r.Process(ctx, as(cmd))
	if IsNoScript(err) {
		cmd = s.command(ctx, "eval", s.source, keys, args)
		err = r.Process(ctx, as(cmd))
	}
	if err != nil {
		return reply{}, err
	}
	return s.parse(cmd)
}

func (s *step) command(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, name, script, len(keys))
	for _, k := range keys {
		line = append(line, k)
	}
	cmd := redis.NewCmd(ctx, append(line, args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// IsNoScript reports whether a server refused a hash that it does not know: after a restart, a failover or SCRIPT FLUSH.
func IsNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

var errReply = errors.New("unexpected reply")

func (s *step) parse(cmd *redis.Cmd) (reply, error) {
	list, err := cmd.Slice()
	if err != nil {
		return reply{}, err
	}
	if len(list) >= 2 {
		status, ok1 := list[0].(int64)
		time, ok2 := list[1].(int64)
		if ok1 && ok2 {
			return reply{status: Status(status), time: time, rest: list[2:]}, nil
		}
	}
	return reply{}, fmt.Errorf("step %s: %w %v", s.name, errReply, list)
}

func (r reply) text(i int) string {
	if i < len(r.rest) {
		s, _ := r.rest[i].(string)
		return s
	}
	return ""
}

func (r reply) number(i int) int64 {
	if i < len(r.rest) {
		n, _ := r.rest[i].(int64)
		return n
	}
	return 0
}
