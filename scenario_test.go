package stockade

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
)

// scenario acts out one threat to an invariant, and returns what was wrong. mutation_test.go shows that it would be.
type scenario func(t *testing.T, s redistest.Server) error

func holds(t *testing.T, s scenario) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, server redistest.Server) {
		if err := s(t, server); err != nil {
			t.Error(err)
		}
	})
}

// settle is time enough for what goroutines have begun, on a real server too.
const settle = 20 * time.Millisecond

// pending is a Get whose loader waits until it is told what to return.
type pending struct {
	began chan struct{}
	end   chan result
	got   chan result
}

type result struct {
	value Entry[string]
	err   error
}

func get(c *Cache[string], key string) *pending {
	p := &pending{make(chan struct{}), make(chan result, 1), make(chan result, 1)}
	go func() {
		e, err := c.Fetch(context.Background(), key, func(ctx context.Context, _ *Entry[string]) (Entry[string], error) {
			close(p.began)
			select {
			case r := <-p.end:
				return r.value, r.err
			case <-ctx.Done():
				return Entry[string]{}, ctx.Err()
			}
		})
		p.got <- result{e, err}
	}()
	return p
}

func (p *pending) finish(e Entry[string], err error) result {
	p.end <- result{e, err}
	return <-p.got
}

func getNow(c *Cache[string], key, value string) result {
	e, err := c.Fetch(context.Background(), key, func(context.Context, *Entry[string]) (Entry[string], error) {
		return Entry[string]{Value: value}, nil
	})
	return result{e, err}
}

func expect(what string, r result, want string) error {
	if r.err != nil || r.value.Value != want {
		return fmt.Errorf("%s: got %q, %v, want %q", what, r.value.Value, r.err, want)
	}
	return nil
}

func storedIn(c *Cache[string], key string) string {
	e, err := c.Lookup(context.Background(), key)
	if err != nil {
		return err.Error()
	}
	return e.Value
}

type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

// runs matches the commands that run a step.
func runs(step string) redistest.Match {
	return func(command []string) bool { return script.StepOf(command) == step }
}

// recorder is a hook that keeps the single commands.
type recorder struct {
	mu   sync.Mutex
	args [][]any // guarded by mu
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.mu.Lock()
		r.args = append(r.args, cmd.Args())
		r.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// last returns the last command that ran a step.
func (r *recorder) last(step string) []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, args := range slices.Backward(r.args) {
		if isStep(args, step) {
			return args
		}
	}
	return nil
}

// count returns how often a step was sent. A server that did not know it was sent it twice.
func (r *recorder) count(step string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, args := range r.args {
		if isStep(args, step) && args[0] == "evalsha" {
			n++
		}
	}
	return n
}

func isStep(args []any, step string) bool {
	return len(args) > 1 && runs(step)([]string{fmt.Sprint(args[0]), fmt.Sprint(args[1])})
}
