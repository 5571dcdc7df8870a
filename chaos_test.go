package stockade

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
)

// chaos is what happens to the clients of a history, and to the server.
type chaos struct {
	plan    plan
	rand    *rand.Rand
	caches  []*Cache[int64]
	proxies []*redistest.Proxy
	faults  []*redistest.Faults
	copies  *copies

	done chan struct{}
	wg   sync.WaitGroup
}

func newChaos(t *testing.T, s redistest.Server, p plan) *chaos {
	c := &chaos{plan: p, rand: rand.New(rand.NewPCG(p.seed, 1000)), done: make(chan struct{})}
	c.copies = &copies{to: s.Client(t), rand: rand.New(rand.NewPCG(p.seed, 1001))}
	for range p.instances {
		proxy, faults := redistest.NewProxy(t, s), redistest.NewFaults(t)
		rdb := proxy.Client(t, func(o *redis.Options) {
			if p.impatient {
				o.ReadTimeout, o.MinRetryBackoff, o.MaxRetryBackoff = 4*time.Millisecond, -1, -1
			}
		})
		rdb.AddHook(faults)
		if p.faults {
			rdb.AddHook(c.copies)
		}
		c.proxies, c.faults = append(c.proxies, proxy), append(c.faults, faults)
		c.caches = append(c.caches, open[int64](t, rdb, func(o *Options) { *o = p.opts }))
	}
	return c
}

// run lets things happen until stop.
func (c *chaos) run(admin *redis.Client) {
	c.wg.Go(func() {
		for {
			select {
			case <-c.done:
				return
			case <-time.After(before(c.rand, 20*time.Millisecond)):
				c.strike(admin)
			}
		}
	})
}

func (c *chaos) strike(admin *redis.Client) {
	ctx := context.Background()
	i := c.rand.IntN(len(c.caches))
	cache, proxy, faults := c.caches[i], c.proxies[i], c.faults[i]
	later := func(d time.Duration, f func()) {
		c.wg.Go(func() {
			select {
			case <-time.After(d):
			case <-c.done:
			}
			f()
		})
	}
	isStep := redistest.Named("evalsha", "eval")
	switch c.rand.IntN(12) {
	case 0:
		faults.LoseReply(1, redistest.Any)
	case 1:
		faults.LoseReply(1, isStep)
	case 2:
		proxy.DropReplies(1, isStep)
	case 3:
		proxy.Freeze()
		later(before(c.rand, c.plan.freeze), proxy.Thaw)
	case 4:
		proxy.Delay(before(c.rand, 4*time.Millisecond))
		later(before(c.rand, 30*time.Millisecond), func() { proxy.Delay(0) })
	case 5:
		_, release := faults.Block(isStep)
		later(before(c.rand, 60*time.Millisecond), release)
	case 6:
		faults.Delay(1, redistest.Any, before(c.rand, 15*time.Millisecond))
	case 7:
		proxy.Cut()
	case 8:
		admin.Del(ctx, cache.view.names("k").Lease)
	case 9:
		admin.Del(ctx, cache.view.names("k").Value)
	case 10:
		admin.ScriptFlush(ctx)
	case 11:
		_ = cache.Expire(ctx, "k")
	}
}

// stop ends all faults.
func (c *chaos) stop() {
	close(c.done)
	c.wg.Wait()
	for i := range c.caches {
		c.faults[i].Clear()
		c.proxies[i].DropReplies(0, nil)
	}
}

// close ends what is left of the clients.
func (c *chaos) close() {
	for _, cache := range c.caches {
		_ = cache.Close()
	}
	c.copies.Wait()
}

// copies is a hook that sends some steps once more, some time later, as a network or a client that repeats may do.
// A Set is not repeated by anybody.
type copies struct {
	to *redis.Client
	sync.WaitGroup

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
}

func (c *copies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *copies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.copy(cmd)
		return next(ctx, cmd)
	}
}

func (c *copies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *copies) copy(cmd redis.Cmder) {
	if step := script.StepOf(words(cmd)); step == "" || step == "set" {
		return
	}
	c.mu.Lock()
	often, after := c.rand.IntN(4) == 0, before(c.rand, 12*time.Millisecond)
	c.mu.Unlock()
	if !often {
		return
	}
	args := cmd.Args()
	c.Go(func() {
		time.Sleep(after)
		c.to.Do(context.Background(), args...)
	})
}

// words are the name of a command, and of the script that it runs.
func words(cmd redis.Cmder) []string {
	var list []string
	for _, arg := range cmd.Args()[:min(len(cmd.Args()), 2)] {
		list = append(list, fmt.Sprint(arg))
	}
	return list
}
