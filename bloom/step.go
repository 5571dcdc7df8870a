package bloom

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
)

// The steps are scripts: they compare the state and use the bits at one moment, go to the master whatever the client's
// routing is, and ask about a batch of keys in one command.
var (
	//go:embed probe.lua
	probeSource string
	//go:embed add.lua
	addSource string
	//go:embed move.lua
	moveSource string

	probeStep, addStep, moveStep = redis.NewScript(probeSource), redis.NewScript(addSource), redis.NewScript(moveSource)
)

// stateName names the state. All names of a filter share a slot of a cluster, and none is that of a cache or lock with the
// same prefix, whose names go on with another letter.
func (f *Filter) stateName() string { return f.prefix + ":B:{" + f.prefix + "}" }

// shardNames names the bits of a generation; nothing when there is none.
func (f *Filter) shardNames(g *generation) []string {
	if g == nil || g.foreign {
		return nil
	}
	names := make([]string, g.shards)
	for i := range names {
		names[i] = f.stateName() + ":" + g.text + ":" + strconv.Itoa(i)
	}
	return names
}

// run makes a step. It returns the state that it found and what it answers besides. Every step may be repeated.
func (f *Filter) run(ctx context.Context, step *redis.Script, names []string, args []any) (text, answer string, err error) {
	if ctx == nil {
		return "", "", errNilContext
	}
	if ctx.Err() != nil {
		return "", "", fmt.Errorf("bloom: %w", context.Cause(ctx))
	}
	reply, err := step.Run(ctx, f.rdb, names, args...).StringSlice()
	switch {
	case err != nil:
		return "", "", fmt.Errorf("bloom: %w: %w", stockade.ErrRedis, err)
	case len(reply) != 2:
		return "", "", fmt.Errorf("bloom: %w: a reply of %d parts", stockade.ErrRedis, len(reply))
	}
	return reply[0], reply[1], nil
}

var errNilContext = errors.New("bloom: ctx is nil: a context is required")

// learn remembers the state that a step found, and returns it.
func (f *Filter) learn(text string) *state {
	s := parseState(text)
	f.state.Store(s)
	return s
}
