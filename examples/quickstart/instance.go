package main

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// instance is one process of the service, as far as it matters here: it shares nothing but Redis and the database.
type instance struct {
	client *redis.Client
	sent   *sentCommands
	get    find
	closer func() error
}

func openInstance(ctx context.Context, options *redis.Options, w way, prefix string, ttl time.Duration, load find) (*instance, error) {
	own := *options
	in := &instance{client: redis.NewClient(&own), sent: &sentCommands{}}
	in.client.AddHook(in.sent)
	err := in.connect(ctx)
	if err != nil {
		in.client.Close()
		return nil, err
	}
	if in.get, in.closer, err = w.open(in.client, prefix, ttl, load); err != nil {
		in.client.Close()
		return nil, err
	}
	in.sent.n.Store(0)
	return in, nil
}

// connect opens all connections of the client, so that no way to read is measured while it opens them.
func (in *instance) connect(ctx context.Context) error {
	failed := make([]error, in.client.Options().PoolSize)
	var pings sync.WaitGroup
	for i := range failed {
		pings.Go(func() { failed[i] = in.client.Ping(ctx).Err() })
	}
	pings.Wait()
	return cmp.Or(failed...)
}

func (in *instance) close() error {
	return cmp.Or(in.closer(), in.client.Close())
}

// sentCommands is a hook that counts the commands of a client, those inside pipelines one by one. What a client says
// to set a connection up is not counted.
type sentCommands struct{ n atomic.Int64 }

func (c *sentCommands) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		switch cmd.Name() {
		case "hello", "auth", "select", "client":
		default:
			c.n.Add(1)
		}
	}
}

func (c *sentCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *sentCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *sentCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}
