package middleware

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/tasks"
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
	calls   *tasks.Group
}

var errRedisFails = errors.New("redis does not answer")

// do makes a call. An error Is [stockade.ErrRedis] or [stockade.ErrClosed].
func do[R any](ctx context.Context, s *steps, call func(context.Context) (R, error)) (R, error) {
	var r R
	err := errRedisFails
	if !s.fails.Load() {
		r, err = tasks.Within(ctx, s.calls, s.timeout, call)
	}
	if err != nil && !errors.Is(err, stockade.ErrClosed) {
		err = fmt.Errorf("%w: %w", stockade.ErrRedis, err)
	}
	return r, err
}
