package middleware

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// cacheStatus is what a request's member of Cache-Status (RFC 9211 2) says of the cache. The key is not shown.
type cacheStatus struct {
	fwd    string // why the request went forward; empty when it did not
	code   int    // the status that the handler answered; zero when it did not
	detail string
}

func (s *cacheStatus) forwarded(why, detail string) { s.fwd, s.detail = why, detail }

// miss is why a request goes forward that finds nothing.
func (v *visit) miss() string {
	if v.index.Value != nil {
		return "vary-miss"
	}
	return "uri-miss"
}

// tellForwarded is for a response that the handler makes for this client alone.
func (v *visit) tellForwarded(h http.Header, status int) {
	v.tell(h, "fwd="+v.status.fwd, "fwd-status="+strconv.Itoa(status))
}

// tellLed is for a response that the request's own run makes.
func (r *run) tellLed(h http.Header, stored bool) {
	why := r.miss()
	if r.old.Value != nil {
		why = "stale"
	}
	params := []string{"fwd=" + why, "fwd-status=" + strconv.Itoa(r.fwd)}
	switch {
	case stored && r.m.redisFails.Load():
		r.status.detail = "redis"
	case stored:
		params = append(params, "stored")
	case r.refused != "":
		r.status.detail = r.refused
	}
	r.tell(h, params...)
}

// tellHit is for a page that was there, left is how long it is fresh; negative when it is stale.
func (v *visit) tellHit(h http.Header, left time.Duration) { v.tell(h, "hit", ttl(left)) }

// tellStale is for an older page, that the request's own run found to stand or to be better than an error.
func (v *visit) tellStale(h http.Header, left time.Duration) {
	params := []string{"fwd=stale"}
	if v.status.code != 0 {
		params = append(params, "fwd-status="+strconv.Itoa(v.status.code))
	}
	v.tell(h, append(params, ttl(left))...)
}

// tellCollapsed is for a page that was made for another request while this one waited.
func (v *visit) tellCollapsed(h http.Header, left time.Duration) {
	v.tell(h, "fwd="+v.miss(), "collapsed", ttl(left))
}

func ttl(left time.Duration) string {
	return "ttl=" + strconv.FormatInt(int64(math.Floor(left.Seconds())), 10)
}

// tell appends the member, as the last of those on the way to the client.
func (v *visit) tell(h http.Header, params ...string) {
	if v.status.detail != "" {
		params = append(params, "detail="+v.status.detail)
	}
	before := h["Cache-Status"]
	h["Cache-Status"] = append(before[:len(before):len(before)], v.m.opts.Name+"; "+strings.Join(params, "; "))
}
