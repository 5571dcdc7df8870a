package middleware

import (
	"context"
	"net/http"
	"net/url"
)

// A run that no request waits for, since it renews a page that was served or its client has left, must not use what belongs
// to the request that started it: routers and frameworks reuse their contexts as soon as a request is answered. Such a run is
// a request of its own. It enters the server as that one did and passes all that stands before the middleware once more.

// runKey is that of the run in the context of its own request.
type runKey struct{}

// ownContext is that of a run with a request of its own: the server's. Without a server, as in tests, it is the request's.
func (r *run) ownContext(ctx context.Context) context.Context {
	if r.server == nil {
		return ctx
	}
	own := context.WithValue(context.Background(), http.ServerContextKey, r.server)
	own = context.WithValue(own, http.LocalAddrContextKey, r.localAddr)
	return context.WithValue(own, runKey{}, r)
}

// resend sends the request of the run once more.
func (r *run) resend(ctx context.Context) {
	if r.server == nil {
		r.handle(r.next, r.r, ctx)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			r.report(v)
		}
		if !r.reached.Swap(true) { // what stands before the middleware has answered it
			r.unshared("unreached", errUnreached)
			r.cancel(nil)
			close(r.done)
		}
	}()
	outer := r.server.Handler
	if outer == nil {
		outer = http.DefaultServeMux
	}
	req := r.r.Clone(ctx)
	req.Body = http.NoBody
	if u, err := url.ParseRequestURI(r.r.RequestURI); err == nil { // what stands before the middleware may have changed it
		req.URL = u
	}
	outer.ServeHTTP(nobody{}, req)
}

// resent returns the run that a request belongs to, if it is the one that is to be run here.
func (m *Middleware) resent(r *http.Request, key string) (*run, bool) {
	run, ok := r.Context().Value(runKey{}).(*run)
	return run, ok && run.m.shared == m.shared && run.primary == key && !run.reached.Swap(true)
}

// nobody is the client of such a request: what is written to it is for nobody.
type nobody struct{}

func (nobody) Header() http.Header         { return http.Header{} }
func (nobody) Write(p []byte) (int, error) { return len(p), nil }
func (nobody) WriteHeader(int)             {}
