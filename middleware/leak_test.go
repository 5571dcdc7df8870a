package middleware

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// byUser is a Key of the user that a request names.
func byUser(r *http.Request) (string, bool) { return userOf(r), true }

// userOf is who a request is from, for a handler.
func userOf(r *http.Request) string {
	if c, err := r.Cookie("session"); err == nil {
		return c.Value
	}
	if user := r.Header.Get("Authorization"); user != "" {
		return user
	}
	return "nobody"
}

// credentials are how a user is named, and routes what may be said of users.
var (
	credentials = map[string]func(user string) []string{
		"Authorization": func(user string) []string { return []string{"Authorization", user} },
		"Cookie":        func(user string) []string { return []string{"Cookie", "a=b; session=" + user} },
		"both":          func(user string) []string { return []string{"Authorization", user, "Cookie", "session=" + user} },
	}
	routes = map[string]Route{
		"default":           {},
		"Authorization":     {Authorization: true},
		"no Cookies":        {Cookies: []string{}},
		"Cookies":           {Cookies: []string{"session"}},
		"Key":               {Key: byUser},
		"Authorization+Key": {Authorization: true, Key: byUser},
		"Cookies+Key":       {Cookies: []string{"session"}, Key: byUser},
	}
)

// Fifty users ask two instances for one URL while it is being made, and again when it may be there. The handler forgets to
// say private.
func TestNobodyGetsThePageOfAnother(t *testing.T) {
	server := redistest.Real(t)
	for credential, fields := range credentials {
		for name, route := range routes {
			for _, control := range []string{"max-age=60", "private, max-age=60", "public, max-age=60"} {
				if route.Authorization && strings.HasPrefix(control, "public") {
					continue // then it is for all
				}
				t.Run(credential+"/"+name+"/"+control, func(t *testing.T) {
					const users = 50
					var here [2]*front
					var asked atomic.Int64
					everyoneAsks := make(chan struct{})
					handler := func(w http.ResponseWriter, r *http.Request) {
						<-everyoneAsks
						w.Header().Set("Cache-Control", control)
						_, _ = fmt.Fprint(w, userOf(r))
					}
					prefix := fmt.Sprint("leak:", t.Name())
					for i := range here {
						here[i] = newFront(t, server.Client(t), handler, func(o *Options) { o.Prefix, o.Route = prefix, route })
						next := here[i].Config.Handler
						here[i].Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if asked.Add(1) == users {
								close(everyoneAsks)
							}
							next.ServeHTTP(w, r)
						})
					}
					for range 2 {
						wrong := 0
						for i, r := range crowd(users, func(i int) reply { return here[i%2].get("/me", fields(fmt.Sprint("user", i))...) }) {
							hidden := route.Cookies != nil && len(route.Cookies) == 0 && r.body == "nobody" && credential == "Cookie"
							if r.body != fmt.Sprint("user", i) && !hidden {
								wrong++
								t.Logf("user%d got %q (%v, %s)", i, r.body, r.err, r.header["Cache-Status"])
							}
						}
						if wrong > 0 {
							t.Errorf("%d of %d users got something else than their page", wrong, users)
						}
					}
				})
			}
		}
	}
}

// RFC 9111 3.5: what was made without Authorization may only answer a request with it when it says so.
func TestAuthorizationMeetsAStoredAnonymousPage(t *testing.T) {
	for _, c := range []struct {
		control string
		shared  bool
	}{{"max-age=60", false}, {"public, max-age=60", true}, {"s-maxage=60", true}} {
		t.Run(c.control, func(t *testing.T) {
			f := newFront(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", c.control)
				_, _ = fmt.Fprint(w, userOf(r))
			}, func(o *Options) { o.Authorization = true })
			get := func(path, user, want string) {
				t.Helper()
				fields := []string{"Authorization", user}
				if user == "nobody" {
					fields = nil
				}
				if !c.shared {
					want = user
				}
				f.get(path, fields...).want(t, 200, want)
			}
			get("/1", "nobody", "nobody")
			get("/1", "alice", "nobody")
			get("/1", "nobody", "nobody")
			get("/2", "alice", "alice")
			get("/2", "nobody", "alice")
			get("/2", "bob", "alice")
		})
	}
}

// A middleware outside may turn one URL into one for each user; or take a prefix away, which says what handler is meant.
func TestRewrittenURLsAreApart(t *testing.T) {
	f := unserved(t, redistest.Real(t).Client(t), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = fmt.Fprint(w, r.RequestURI, " ", r.URL.Path)
	})
	for range 2 {
		for _, c := range []struct{ sent, rewritten, want string }{
			{"/me", "/users/alice", "/me /users/alice"},
			{"/me", "/users/bob", "/me /users/bob"},
			{"/a/page", "/page", "/a/page /page"},
			{"/b/page", "/page", "/b/page /page"},
		} {
			r := request(t, "GET "+c.sent+" HTTP/1.1\r\nHost: example.com\r\n\r\n")
			r.URL.Path = c.rewritten
			record(f.handler, r).want(t, 200, c.want)
		}
	}
}
