package stockade

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/stockade-cache/stockade/internal/tasks"
)

// Guard knows of keys that cannot exist, so that a flood of made-up keys does not reach the source. The cache asks it
// when it would begin to load a missing key, never on a hit or for the refresh of a value that is there. Package bloom
// has one.
//
// MayExist answers for each of keys, in their order; it must be safe for concurrent use. False means that the key
// certainly does not exist: callers get [ErrNotFound], and nothing is stored. An error, a panic, an answer of another
// length, or none within [Options.RedisTimeout], means that all of them may exist. The context is the one
// that the loader would get, with that deadline.
type Guard interface {
	MayExist(ctx context.Context, keys []string) ([]bool, error)
}

// rulesOut returns which keys, that are about to be loaded, cannot exist by the word of the Guard.
func (c *core) rulesOut(ctx context.Context, keys []string) map[string]bool {
	// While an answer is overdue nothing is asked: a Guard that hangs must not delay every load, nor gather goroutines.
	if c.overdue.Load() > 0 {
		return nil
	}
	var over atomic.Bool // the call has ended or was given up, whichever came first
	may, err := tasks.Within(ctx, c.work, c.opts.RedisTimeout, func(ctx context.Context) ([]bool, error) {
		defer func() {
			if over.Swap(true) {
				c.overdue.Add(-1)
			}
		}()
		return askGuard(ctx, c.opts.Guard, slices.Clone(keys))
	})
	if err == nil {
		var out map[string]bool
		for i, key := range keys {
			if !may[i] {
				c.stats.ruledOut.Add(1)
				if out == nil {
					out = map[string]bool{}
				}
				out[key] = true
			}
		}
		return out
	}
	if !over.Swap(true) {
		c.overdue.Add(1)
	}
	if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		c.stats.guardErrors.Add(1)
		tell(c.opts.Observer.Guard, GuardEvent{Keys: slices.Clone(keys), Err: err})
	}
	return nil
}

// askGuard calls the Guard, and makes an error of everything that is no answer.
func askGuard(ctx context.Context, g Guard, keys []string) (may []bool, err error) {
	returned := false
	defer func() {
		if !returned {
			may, err = nil, &PanicError{Value: recover(), Stack: debug.Stack()}
		}
	}()
	may, err = g.MayExist(ctx, keys)
	returned = true
	if err == nil && len(may) != len(keys) {
		err = fmt.Errorf("stockade: the Guard gave %d answers for %d keys", len(may), len(keys))
	}
	return may, err
}
