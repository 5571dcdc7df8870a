package middleware

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// member is one of Cache-Status, parsed.
type member struct {
	name   string
	params map[string]string // a flag is "?1"
}

// parseStatus reads Cache-Status as a structured list of tokens with parameters (RFC 9651 4.2), strictly.
func parseStatus(t testing.TB, h http.Header) []member {
	t.Helper()
	var members []member
	for _, text := range strings.Split(strings.Join(h["Cache-Status"], ", "), ", ") {
		parts := strings.Split(text, "; ")
		m := member{parts[0], map[string]string{}}
		if !isSFToken(m.name) {
			t.Errorf("%q: %q is no token of a structured field", text, m.name)
		}
		for _, part := range parts[1:] {
			key, value, valued := strings.Cut(part, "=")
			if !valued {
				value = "?1"
			}
			if _, twice := m.params[key]; twice || key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz-") != "" {
				t.Errorf("%q: the parameter %q", text, key)
			}
			m.params[key] = value
			switch key {
			case "hit", "stored", "collapsed":
				want(t, key, value, "?1")
			case "fwd-status", "ttl":
				if n, err := strconv.Atoi(value); err != nil || strconv.Itoa(n) != value {
					t.Errorf("%q: %s is no integer", text, part)
				}
			case "fwd":
				switch value {
				case "bypass", "method", "uri-miss", "vary-miss", "miss", "request", "stale", "partial": // RFC 9211 2.2
				default:
					t.Errorf("%q: %s is not registered", text, part)
				}
			case "detail":
				if !isSFToken(value) {
					t.Errorf("%q: %s is no token", text, part)
				}
			default:
				t.Errorf("%q: %s is not registered", text, part)
			}
		}
		if m.params["hit"] != "" && m.params["fwd"] != "" { // RFC 9211 2.2
			t.Errorf("%q is both a hit and forwarded", text)
		}
		members = append(members, m)
	}
	return members
}

// isSFToken reports whether s is a token of RFC 9651 3.3.4: it begins with a letter or an asterisk.
func isSFToken(s string) bool {
	if s == "" {
		return false
	}
	c := s[0] | 0x20
	return (c >= 'a' && c <= 'z' || s[0] == '*') && isToken(strings.NewReplacer(":", "-", "/", "-").Replace(s))
}

// What became of a request, for each way that it can go.
func TestCacheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", r.URL.Query().Get("cc"))
			if r.URL.Query().Has("vary") {
				w.Header().Set("Vary", "Accept")
			}
			if status, err := strconv.Atoi(r.URL.Query().Get("status")); err == nil {
				w.WriteHeader(status)
			}
		}, func(o *Options) { o.Name = "Edge.1" })
		ask := func(method, query, wanted string, fields ...string) {
			t.Helper()
			r := s.send(method, "http://a.example/?"+query, fields...)
			got := r.Header.Get("Cache-Status")
			parseStatus(t, r.Header)
			want(t, method+" "+query, got, "Edge.1; "+wanted)
		}
		const fresh, while, private = "cc=max-age=60", "cc=max-age=10,stale-while-revalidate=60", "cc=private"
		ask("GET", fresh, "fwd=uri-miss; fwd-status=200; stored")
		ask("GET", while, "fwd=uri-miss; fwd-status=200; stored")
		ask("GET", fresh+"&vary", "fwd=uri-miss; fwd-status=200; stored")
		time.Sleep(1500 * time.Millisecond)
		ask("GET", fresh, "hit; ttl=58")
		ask("HEAD", fresh, "hit; ttl=58")
		ask("GET", fresh+"&vary", "fwd=vary-miss; fwd-status=200; stored", "Accept: text/html")
		ask("GET", fresh+"&vary", "hit; ttl=58")
		ask("GET", fresh, "fwd=bypass; fwd-status=200; detail=cookie", "Cookie: a=b")
		ask("GET", fresh, "fwd=bypass; fwd-status=200; detail=authorization", "Authorization: x")
		ask("OPTIONS", fresh, "fwd=method; fwd-status=200")
		ask("POST", fresh, "fwd=method; fwd-status=200")
		ask("GET", private, "fwd=uri-miss; fwd-status=200; detail=private")
		ask("GET", private, "fwd=uri-miss; fwd-status=200; detail=private")
		ask("GET", "status=404", "fwd=uri-miss; fwd-status=404; detail=no-freshness")
		time.Sleep(10 * time.Second)
		ask("GET", while, "hit; ttl=-2") // stale: RFC 9211 2.5
		synctest.Wait()
		ask("GET", while, "hit; ttl=10")
		time.Sleep(2 * time.Minute)
		ask("GET", fresh, "fwd=uri-miss; fwd-status=200; stored")
	})
}

// Who waited for the run of another was not a hit, and did not run.
func TestCacheStatusOfWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			answers("page", "Cache-Control: max-age=60")(w, r)
		})
		go s.get("http://a.example/")
		time.Sleep(time.Second)
		r := s.get("http://a.example/")
		parseStatus(t, r.Header)
		want(t, "Cache-Status", r.Header.Get("Cache-Status"), "stockade; fwd=uri-miss; collapsed; ttl=58")
		wantRuns(t, s, 1)
	})
}

// Caches on the way to the client come last (RFC 9211 2).
func TestCacheStatusIsAppended(t *testing.T) {
	s := serve(t, answers("page", "Cache-Control: max-age=60", "Cache-Status: upstream; hit"))
	members := parseStatus(t, s.get("http://a.example/").Header)
	want(t, "members", len(members), 2)
	want(t, "first", members[0].name, "upstream")
	want(t, "last", members[1].name, "stockade")
	members = parseStatus(t, s.get("http://a.example/").Header) // of this exchange alone
	want(t, "members of a hit", len(members), 1)
}

func TestTTL(t *testing.T) {
	for left, text := range map[time.Duration]string{
		0: "ttl=0", time.Second: "ttl=1", 1999 * time.Millisecond: "ttl=1", -time.Millisecond: "ttl=-1", -time.Second: "ttl=-1", maxLifetime: "ttl=2207520000",
	} {
		want(t, left.String(), ttl(left), text)
	}
}

// While Redis fails nothing is stored, and that is said.
func TestStatusWithoutRedis(t *testing.T) {
	s := serve(t, answers("page", "Cache-Control: max-age=60"))
	for fails, status := range map[bool]string{false: "stockade; fwd=uri-miss; fwd-status=200; stored", true: "stockade; fwd=uri-miss; fwd-status=200; detail=redis"} {
		s.mw.redisFails.Store(fails)
		want(t, "Cache-Status", s.do("GET", "/"+strconv.FormatBool(fails)).Header().Get("Cache-Status"), status)
	}
}

// Who waits for another instance is told so.
func TestStatusOfAWaitElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Fake(t)
		slow := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			answers("page", "Cache-Control: max-age=60")(w, r)
		}
		a, b := newSite(t, server.Client(t), Route{}, slow), newSite(t, server.Client(t), Route{}, slow)
		go a.do("GET", "/")
		synctest.Wait()
		want(t, "Cache-Status", b.do("GET", "/").Header().Get("Cache-Status"), "stockade; fwd=uri-miss; collapsed; ttl=59")
		want(t, "runs there", b.runs.Load(), 0)
	})
}

// A response that is not stored after all does not say that it is.
func TestStatusOfWhatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Fake(t)
		s := newSite(t, server.Client(t), Route{MaxVariants: 1}, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				w.Header().Set("Cache-Control", "private")
				w.WriteHeader(http.StatusNotModified)
				return
			}
			answers("page", "Cache-Control: max-age=60", `Etag: "1"`, "Vary: "+r.Header.Get("Vary-By"))(w, r)
		})
		status := func(path string, fields ...string) string {
			return s.do("GET", path, fields...).Header().Get("Cache-Status")
		}
		want(t, "stored", status("/"), "stockade; fwd=uri-miss; fwd-status=200; stored")
		time.Sleep(2 * time.Minute)
		want(t, "the 304 has changed that", status("/"), "stockade; fwd=stale; fwd-status=304; detail=private")
		want(t, "the first variant", status("/v", "Vary-By: A", "A: 1"), "stockade; fwd=uri-miss; fwd-status=200; stored")
		want(t, "one too many", status("/v", "Vary-By: A", "A: 2"), "stockade; fwd=vary-miss; fwd-status=200")
	})
}
