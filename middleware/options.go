package middleware

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/stockade-cache/stockade"
)

// Options configure a [Middleware]. Only Prefix is required.
type Options struct {
	// Prefix is the namespace of all keys in Redis, without braces. Required. When the handlers change so that stored
	// pages are wrong, change it: "pages:v2", say. No Cache may have the same.
	Prefix string
	// Scheme is by what clients reach this server, "http" or "https", when a proxy before it ends TLS. Default by the
	// connection of each request.
	Scheme string
	// Name is that of this cache in Cache-Status. Default "stockade".
	Name string
	// RunTimeout is when the context of a shared run of the handler ends. A tenth of it later, 100 ms at least, the run is
	// given up. A response that streams may take longer. Default 30 s.
	RunTimeout time.Duration
	// MaxRuns is how many shared runs may go on in this process at once. Beyond it requests wait their turn. Default 1024.
	MaxRuns int
	// RedisTimeout is what one step of Redis may take. Default 250 ms.
	RedisTimeout time.Duration
	// Local is a tier of pages in this process, before Redis. Default off.
	Local stockade.LocalOptions
	// Observer is told of runs (as loads), waits, refreshes and failures of Redis. Default nothing.
	Observer stockade.Observer
	// Route is what may differ by route, see [Middleware.With].
	Route
}

// Route is the part of [Options] that a route may change, see [Middleware.With]. A zero field means the parent's there;
// a negative duration means none, where the default is none and for KeepFor.
type Route struct {
	// TTL is how long responses are fresh that say nothing about it, with a status of 200, 203, 204, 300, 301, 308, 404
	// or 410. Default none: they are not stored.
	TTL time.Duration
	// StaleWhileRevalidate is for how long after that a page is served at once while one run renews it, when the response
	// does not say (RFC 5861 3). Default none.
	StaleWhileRevalidate time.Duration
	// StaleIfError is for how long after it became stale a page is served when the handler answers 500, 502, 503 or 504,
	// panics or takes too long, when the response does not say (RFC 5861 4). Default none.
	StaleIfError time.Duration
	// KeepFor is for how long a page with a validator is kept after it has become stale, so that the handler may answer
	// 304 to a conditional request. Default 10 minutes.
	KeepFor time.Duration
	// HitForMiss is for how long requests are not held up for each other once a response could not be shared. Default 10 s.
	HitForMiss time.Duration
	// WaitTimeout is for how long a request waits for the run of another. Then they run the handler themselves, one by one
	// in each process; who has not had its turn after another WaitTimeout gets a 503. Default 10 s.
	WaitTimeout time.Duration
	// MaxBody is the greatest body that is stored, in bytes. Greater ones stream to their clients. Default 1 MiB.
	MaxBody int
	// MaxVariants is how many variants of one URL (Vary, Cookies, Key) may be stored within the lifetime of its index.
	// Default 100.
	MaxVariants int
	// Key says what responses depend on besides the URL and what Vary names: a tenant, a language, a plan. False means
	// that this request is not to be shared. With Key, requests with cookies are shared. It must say all that a response
	// depends on: who has the same URL, Vary and Key gets the same page. Default none.
	Key func(*http.Request) (key string, ok bool)
	// Cookies are the names of all the cookies that responses depend on: their values select the page, and the handler
	// gets no others. Empty but not nil means none. Default nil: a request with cookies is not shared.
	Cookies []string
	// Authorization lets responses to requests with Authorization be shared that allow it by public, s-maxage or
	// must-revalidate (RFC 9111 3.5). Default false: such requests are not shared.
	Authorization bool
	// SetCookie lets responses with Set-Cookie be shared, with the cookie. Default false: they are not.
	SetCookie bool
	// NotStored are names of response fields that go to the client of the run alone. Default X-Request-Id, Traceparent,
	// Tracestate and Server-Timing.
	NotStored []string
	// Targeted are names of response fields that say to this cache what Cache-Control and Expires say to others, in the syntax
	// of RFC 9213: the first that is there and valid counts, and neither of those two. "Stockade-Cache-Control", say, to share
	// what browsers may not store; or "CDN-Cache-Control" where this is the CDN. Clients get them too. Default none.
	Targeted []string
	// Tags honours Surrogate-Key, Cache-Tag and Cache-Groups of responses, for [Middleware.PurgeTag]. A run asks Redis
	// once more then, and so does every hit on a tagged page. Default false.
	Tags bool
	// ClientControl honours the Cache-Control of requests, and Pragma: no-cache. A client may force runs then. Default false.
	ClientControl bool
}

const (
	defaultName         = "stockade"
	defaultRunTimeout   = 30 * time.Second
	defaultMaxRuns      = 1024
	defaultRedisTimeout = 250 * time.Millisecond
	defaultKeepFor      = 10 * time.Minute
	defaultHitForMiss   = 10 * time.Second
	defaultWaitTimeout  = 10 * time.Second
	defaultMaxBody      = 1 << 20
	defaultMaxVariants  = 100
	maxBody             = 256 << 20 // Redis holds no more than 512 MiB in one value
)

var defaultNotStored = []string{"X-Request-Id", "Traceparent", "Tracestate", "Server-Timing"}

// complete fills in the defaults and refuses what cannot be meant. Prefix, Local and Observer are the Cache's to judge.
func (o Options) complete() (Options, error) {
	switch o.Scheme {
	case "", "http", "https":
	default:
		return o, optionError("Scheme", o.Scheme, `must be "http", "https" or empty`)
	}
	if o.Name == "" {
		o.Name = defaultName
	}
	if c := o.Name[0] | 0x20; !isToken(o.Name) || c < 'a' || c > 'z' { // RFC 9651 3.3.4
		return o, optionError("Name", o.Name, "must be a token of letters, digits and a few signs that begins with a letter")
	}
	if o.RunTimeout == 0 {
		o.RunTimeout = defaultRunTimeout
	}
	if o.RunTimeout < time.Millisecond || o.RunTimeout > maxLifetime {
		return o, optionError("RunTimeout", o.RunTimeout, "must be from 1 ms to 70 years")
	}
	if o.MaxRuns == 0 {
		o.MaxRuns = defaultMaxRuns
	}
	if o.MaxRuns < 0 {
		return o, optionError("MaxRuns", o.MaxRuns, "must be positive")
	}
	if o.RedisTimeout == 0 {
		o.RedisTimeout = defaultRedisTimeout
	}
	if o.RedisTimeout < time.Millisecond || o.RedisTimeout > time.Hour {
		return o, optionError("RedisTimeout", o.RedisTimeout, "must be from 1 ms to 1 h")
	}
	route, err := Route{
		TTL: -1, StaleWhileRevalidate: -1, StaleIfError: -1, KeepFor: defaultKeepFor, HitForMiss: defaultHitForMiss,
		WaitTimeout: defaultWaitTimeout, MaxBody: defaultMaxBody, MaxVariants: defaultMaxVariants, NotStored: defaultNotStored,
	}.with(o.Route)
	o.Route = route
	return o, err
}

// with returns the route with what another changes.
func (r Route) with(o Route) (Route, error) {
	for _, d := range []struct {
		name   string
		to     *time.Duration
		value  time.Duration
		always bool // there is no such thing as none
	}{
		{"TTL", &r.TTL, o.TTL, false},
		{"StaleWhileRevalidate", &r.StaleWhileRevalidate, o.StaleWhileRevalidate, false},
		{"StaleIfError", &r.StaleIfError, o.StaleIfError, false},
		{"KeepFor", &r.KeepFor, o.KeepFor, false},
		{"HitForMiss", &r.HitForMiss, o.HitForMiss, true},
		{"WaitTimeout", &r.WaitTimeout, o.WaitTimeout, true},
	} {
		switch {
		case d.value == 0:
		case d.value < 0 && d.always, d.value > 0 && d.value < time.Millisecond, d.value > maxLifetime:
			return r, optionError(d.name, d.value, "must be from 1 ms to 70 years")
		default:
			*d.to = d.value
		}
	}
	if o.MaxBody != 0 {
		r.MaxBody = o.MaxBody
	}
	if r.MaxBody < 0 || r.MaxBody > maxBody {
		return r, optionError("MaxBody", r.MaxBody, "must be from 1 B to 256 MiB")
	}
	if o.MaxVariants != 0 {
		r.MaxVariants = o.MaxVariants
	}
	if r.MaxVariants < 0 || r.MaxVariants > math.MaxInt32 {
		return r, optionError("MaxVariants", r.MaxVariants, "must be positive")
	}
	if o.Key != nil {
		r.Key = o.Key
	}
	if o.Cookies != nil {
		for _, name := range o.Cookies {
			if !isToken(name) {
				return r, optionError("Cookies", name, "is no name of a cookie")
			}
		}
		r.Cookies = append([]string{}, o.Cookies...)
	}
	for _, names := range []struct {
		name string
		to   *[]string
		of   []string
	}{{"NotStored", &r.NotStored, o.NotStored}, {"Targeted", &r.Targeted, o.Targeted}} {
		if names.of != nil {
			*names.to = nil
		}
		for _, name := range names.of {
			if !isToken(name) {
				return r, optionError(names.name, name, "is no name of a field")
			}
			*names.to = append(*names.to, http.CanonicalHeaderKey(name))
		}
	}
	r.Authorization = r.Authorization || o.Authorization
	r.SetCookie = r.SetCookie || o.SetCookie
	r.Tags = r.Tags || o.Tags
	r.ClientControl = r.ClientControl || o.ClientControl
	return r, nil
}

// optionError names the field and the value that New or With refuses.
func optionError(field string, value any, want string) error {
	return fmt.Errorf("middleware: %s is %v: %s", field, value, want)
}
