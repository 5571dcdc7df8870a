package middleware

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
)

//go:embed begin.lua
var beginSource string

//go:embed keep.lua
var keepSource string

//go:embed purge.lua
var purgeSource string

//go:embed admit.lua
var admitSource string

var (
	beginScript = redis.NewScript(beginSource)
	keepScript  = redis.NewScript(keepSource)
	purgeScript = redis.NewScript(purgeSource)
	admitScript = redis.NewScript(admitSource)
)

// steps are those that the middleware itself asks of Redis.
type steps struct {
	rdb     redis.UniversalClient
	prefix  string
	timeout time.Duration
	fails   *atomic.Bool // Redis is known not to answer: nothing is asked
	calls   sync.WaitGroup
}

var errRedisFails = errors.New("redis does not answer")

// do makes a call that may take the timeout, whatever the client's own are: the call itself goes on then, and what it
// brings is dropped.
func do[R any](ctx context.Context, s *steps, call func(context.Context) (R, error)) (R, error) {
	type answer struct {
		r   R
		err error
	}
	var none R
	if s.fails.Load() {
		return none, fmt.Errorf("%w: %w", stockade.ErrRedis, errRedisFails)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	answered := make(chan answer, 1)
	s.calls.Go(func() {
		defer cancel()
		r, err := call(ctx)
		answered <- answer{r, err}
	})
	select {
	case a := <-answered:
		if a.err != nil {
			return none, fmt.Errorf("%w: %w", stockade.ErrRedis, a.err)
		}
		return a.r, nil
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %w", stockade.ErrRedis, context.Cause(ctx))
	}
}
