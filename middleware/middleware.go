// Package middleware shares the responses of expensive net/http handlers: a handler behind it runs once for a thousand
// clients on every instance together, and what it answered is kept in Redis by the rules of HTTP caching (RFC 9111).
//
//	mw, err := middleware.New(rdb, middleware.Options{Prefix: "pages"})
//	http.Handle("/report", mw.Handler(report))
//
// # What is shared
//
// Only what the handler allows: a response to GET or HEAD that says how long it is fresh (Cache-Control: max-age or
// s-maxage, or Expires; or [Route.TTL]), is not private, no-store or no-cache, and sets no cookie. Requests with Authorization or
// cookies go to the handler untouched, unless the route says what responses depend on: [Route.Key], [Route.Cookies],
// [Route.Authorization]. A request field that a response depends on must be named in its Vary.
//
// What is not shared is not held up: once a response could not be, requests for its URL do not wait for each other for
// [Route.HitForMiss]. It streams to its client as it is made.
//
// # The run
//
// A shared run belongs to all who wait for it: its context has the values of the first request's, not its cancellation. Its
// request has no conditions and no Range. A panic is raised again where the first client waits, and is nobody else's.
//
// # When Redis is down
//
// The handler runs, once for the requests of one process that come while it runs, and nothing is stored; a page is
// remembered for a second. It works again by itself.
package middleware

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/internal/tasks"
)

// Middleware shares responses. It is safe for concurrent use. Close it after the server has been shut down; the client
// stays open.
type Middleware struct {
	*shared
	route Route
}

// shared is what the routes of a Middleware share.
type shared struct {
	opts       Options // complete
	cache      *stockade.Cache[*stored]
	tags       *tags
	redisFails atomic.Bool
	turns      tasks.Turns // of the requests that have waited for too long, by URL
	renewing   sync.Map    // keys whose pages are being renewed in the background
	runs       *tasks.Group
	closed     chan struct{}
	closing    sync.Once
}

// New returns a middleware on a client of any kind. It does no I/O and starts no goroutine. The error names the field and
// the value that it refuses.
func New(rdb redis.UniversalClient, opts Options) (*Middleware, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	group := func() *tasks.Group { return &tasks.Group{Closed: stockade.ErrClosed} }
	s := &shared{opts: opts, runs: group(), closed: make(chan struct{})}
	observer := opts.Observer
	observer.Redis = func(e stockade.RedisEvent) {
		s.redisFails.Store(e.Open)
		if opts.Observer.Redis != nil {
			opts.Observer.Redis(e)
		}
	}
	s.cache, err = stockade.New[*stored](rdb, stockade.Options{
		Prefix: opts.Prefix, FailureBackoff: failureBackoff, LoadTimeout: opts.giveUp(), MaxLoads: opts.MaxRuns,
		RedisTimeout: opts.RedisTimeout, LeaseTTL: max(leaseTTL, 4*opts.RedisTimeout), Local: opts.Local, Observer: observer,
	})
	if err != nil {
		return nil, err
	}
	steps := &steps{rdb: rdb, prefix: opts.Prefix, timeout: opts.RedisTimeout, fails: &s.redisFails, calls: group()}
	s.tags = &tags{steps, 2*opts.giveUp() + time.Minute}
	return &Middleware{s, opts.Route}, nil
}

const (
	// failureBackoff is for how long after a failed run nobody repeats it.
	failureBackoff = 100 * time.Millisecond
	// leaseTTL is for how long a process that has died delays the others. It is longer where Redis may be slow.
	leaseTTL = 2 * time.Second
)

// With returns a middleware for routes that differ. It shares everything else, what is stored too.
func (m *Middleware) With(r Route) (*Middleware, error) {
	route, err := m.route.with(r)
	if err != nil {
		return nil, err
	}
	return &Middleware{m.shared, route}, nil
}

// Handler returns next behind the middleware. It belongs outside of what compresses responses, and of what rewrites the URL:
// a request whose URL has been rewritten before it comes here is not shared, unless only a prefix was taken off.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{m: m, route: &m.route, next: next, w: w, r: r}
		var ok bool
		v.target, ok = m.targetOf(r)
		switch {
		case !ok:
			v.status.forwarded("bypass", "target")
			v.pass(entry{}, "")
		case v.isRead():
			v.primary = v.target.key(r.Method)
			if run, ok := m.resent(r, v.primary); ok {
				run.handle(next, r, r.Context())
				return
			}
			v.read()
		case isSafe(r.Method):
			v.status.forwarded("method", "")
			v.pass(entry{}, "")
		default:
			v.write()
		}
	})
}

// Stats returns the counters of the cache of pages: a run of the handler is a load, and a request may read twice.
func (m *Middleware) Stats() stockade.Stats { return m.cache.Stats() }

// Close ends the middleware: the contexts of shared runs end, and requests go to their handlers untouched. It returns when
// all runs and all calls of the client have. It may be called again.
func (m *Middleware) Close() error {
	var err error
	m.closing.Do(func() {
		close(m.closed)
		err = m.cache.Close()
		m.runs.Close()
		m.tags.calls.Close()
	})
	return err
}

// refresh renews a page in the background, unless this process does so already.
func (m *shared) refresh(run *run, key string, seen entry) {
	run.take()
	if _, renews := m.renewing.LoadOrStore(key, true); renews {
		return
	}
	run.start = time.Now()
	begun := m.runs.Run(func() {
		defer m.renewing.Delete(key)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(run.r.Context()), m.opts.giveUp())
		defer cancel()
		_, _ = m.cache.Renew(ctx, key, seen, run.load) // a failure has been told to the Observer
	})
	if !begun {
		m.renewing.Delete(key)
	}
}

// admit reports whether one more variant of a URL may be stored. When Redis does not say, it will hardly store it either.
func (m *shared) admit(ctx context.Context, v *visit, x *index) bool {
	name := m.opts.Prefix + ":n:" + v.primary + ":" + x.Generation
	admitted, err := do(ctx, m.tags.steps, func(ctx context.Context) (bool, error) {
		return admitScript.Run(ctx, m.tags.rdb, []string{name}, v.route.MaxVariants, max(x.Life, time.Second).Milliseconds()).Bool()
	})
	return err != nil || admitted
}
