package main

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// cut is a hook that cuts a client off: it stands for a process that was stopped, and whose renewals do not go out.
type cut struct{ isOff atomic.Bool }

func (c *cut) off() { c.isOff.Store(true) }
func (c *cut) on()  { c.isOff.Store(false) }

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.isOff.Load() {
			<-ctx.Done() // no answer, and nothing sent
			cmd.SetErr(context.Cause(ctx))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.isOff.Load() {
			<-ctx.Done()
			for _, cmd := range cmds {
				cmd.SetErr(context.Cause(ctx))
			}
			return context.Cause(ctx)
		}
		return next(ctx, cmds)
	}
}
