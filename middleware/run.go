package middleware

import (
	"context"
	"errors"
	"log"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockade-cache/stockade"
)

// run is one run of the handler whose response may be shared. It belongs to the cache, not to the client whose request
// started it: that may leave. But it is that client's own response, whether it may be shared or not. What turns out not to
// be for others streams to the client as it is made.
type run struct {
	*visit      // its own
	again  bool // the last run for these clients failed

	cancel    context.CancelCauseFunc // of the handler's context; set before the handler runs
	server    *http.Server            // nil in tests without one
	localAddr any
	reached   atomic.Bool // by the request that was sent once more

	// What the run was given, and what came of it. Written before settled is closed.
	old      entry // what is stored; its Value is nil without it
	epoch    int64 // of the tags
	verdict  entry // for everyone
	err      error
	terms    terms  // of what is stored
	refused  string // why it is not
	fwd      int    // the status that the handler answered
	own      *response
	panicked any           // re-raised where the client waits
	settled  chan struct{} // closed when it is known what others get
	done     chan struct{} // closed when the handler has returned

	mu      sync.Mutex
	begun   bool                // guarded by mu: in the place of the request, which waits for it
	client  http.ResponseWriter // guarded by mu; nil when the client's goroutine has it back
	streams bool                // guarded by mu: the run has taken client for itself
}

// response is one that was recorded.
type response struct {
	status int
	header http.Header
	body   []byte
}

var (
	errDetached  = errors.New("middleware: nobody is there who could get what the handler writes")
	errCancelled = errors.New("middleware: the context of the run has ended")
	errUnreached = errors.New("middleware: the request of a run was answered before it came to the middleware")
	errFailed    = errors.New("middleware: the handler panicked")
	errCut       = errors.New("middleware: the body is shorter or longer than Content-Length says")
)

// newRun returns a run for the visit as it is: it may go on in the background while the visit does too.
func (v *visit) newRun(again bool) *run {
	at := *v
	r := &run{visit: &at, again: again, client: v.w, settled: make(chan struct{}), done: make(chan struct{})}
	ctx := v.r.Context()
	r.server, _ = ctx.Value(http.ServerContextKey).(*http.Server)
	r.localAddr = ctx.Value(http.LocalAddrContextKey)
	return r
}

// load is what the cache calls when this process is to fill a key. It returns when it is known what others get: for a
// response that streams that is before the handler has returned.
func (r *run) load(ctx context.Context, old *entry) (entry, error) {
	if old != nil {
		switch s := old.Value; {
		case s.Index != nil: // it stands while it is in use
			return indexEntry(s), errNotModified
		case s.Mark != nil: // a refresh that nobody needs
			return entry{Value: s, NoStore: true}, nil
		case s.Page.Variant == r.variant(s.Page.Vary):
			r.old = *old
		}
	}
	if r.route.Tags {
		epoch, err := r.m.tags.begin(ctx)
		if err != nil {
			epoch = noEpoch
		}
		r.epoch = epoch
	}
	values, runs := context.WithoutCancel(ctx), r.place
	if old != nil && old.Source != stockade.Kept || !r.begin() {
		values, runs = r.ownContext(values), r.resend
	}
	handling, cancel := context.WithCancelCause(values)
	r.cancel = cancel
	work := func() { runs(handling) }
	if !r.m.runs.Run(work) {
		r.settle(entry{}, stockade.ErrClosed)
		close(r.done)
	}
	timer := time.NewTimer(r.m.opts.RunTimeout)
	defer timer.Stop()
	select {
	case <-r.settled:
		return r.verdict, r.err
	case <-ctx.Done():
		cancel(errCancelled)
	case <-timer.C:
		// The handler may still say what it makes of that. When an older page will do, nobody waits for it.
		cancel(context.DeadlineExceeded)
		if e, ok := r.older(); ok {
			return e, nil
		}
	}
	<-r.settled
	return r.verdict, r.err
}

// begin takes the place of the request that started the run, unless that has been answered already.
func (r *run) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = r.client != nil
	return r.begun
}

// place runs the handler in the place of the request.
func (r *run) place(ctx context.Context) { r.handle(r.next, r.r, ctx) }

// handle runs the handler for a request.
func (r *run) handle(next http.Handler, req *http.Request, ctx context.Context) {
	defer close(r.done)
	defer r.cancel(nil)
	rec := &recorder{run: r, ctx: ctx, header: http.Header{}}
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil { // runtime.Goexit
			v = http.ErrAbortHandler
		}
		rec.abort(v)
	}()
	next.ServeHTTP(rec, r.request(req, ctx))
	rec.finish()
	returned = true
}

// request is what the handler of a shared run gets: nothing in it may make the response one for this client alone, like a
// 304 or a part of it. With an old page it asks whether that still stands.
func (r *run) request(req *http.Request, ctx context.Context) *http.Request {
	req = r.route.handled(req, ctx)
	withoutConditions(req.Header)
	if r.old.Value != nil {
		conditional(req.Header, r.old.Value.Page)
	}
	return req
}

// settle says what others get, once.
func (r *run) settle(e entry, err error) {
	r.verdict, r.err = e, err
	close(r.settled)
}

// unshared says that others get nothing of this response. A first failure lets them try once more; after that they do not
// wait for each other for a moment.
func (r *run) unshared(reason string, failure error) {
	r.refused = reason
	switch {
	case failure == nil:
		r.settle(markEntry(reason, r.route.HitForMiss), nil)
	case r.again:
		r.settle(markEntry(reason, min(r.route.HitForMiss, errorMark)), nil)
	default:
		r.settle(entry{}, failure)
	}
}

// errorMark is for how long requests do not wait for each other after two failures in a row.
const errorMark = time.Second

func markEntry(reason string, ttl time.Duration) entry {
	return entry{Value: storedMark(reason), TTL: ttl, StaleFor: -1, KeepFor: -1}
}

// older is the page that may be served since the handler fails.
func (r *run) older() (entry, bool) {
	if r.old.Value == nil {
		return entry{}, false
	}
	return r.old.Value.Page.insteadOfError(r.old)
}

// take gives the client's writer back to the client's goroutine. It reports false when the run streams to it: then the run
// has it until it is done.
func (r *run) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.streams {
		r.client = nil
	}
	return !r.streams
}

// stream takes the client's writer for the run, or returns nil when that is with the client's goroutine.
func (r *run) stream() http.ResponseWriter {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams = r.client != nil
	return r.client
}

// touch calls f with the client's writer while that is not the client's goroutine's.
func (r *run) touch(f func(http.ResponseWriter) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		return errDetached
	}
	return f(r.client)
}

// report logs a panic that is not raised on any goroutine of a client, as net/http logs those that are.
func (r *run) report(v any) {
	if v == http.ErrAbortHandler {
		return
	}
	logf := log.Printf
	if r.server != nil && r.server.ErrorLog != nil {
		logf = r.server.ErrorLog.Printf
	}
	logf("middleware: panic in a run that no client waits for: %v\n%s", v, debug.Stack())
}

// statusError is the failure of a run whose response says so.
type statusError int

func (e statusError) Error() string {
	return "middleware: the handler answered " + strconv.Itoa(int(e))
}
