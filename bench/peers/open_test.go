package peers

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All[int]() {
		if c.Name != strings.ToLower(c.Name) || seen[c.Name] || c.About == "" {
			t.Errorf("%q, %q: want a name of its own in lower case, and what it is", c.Name, c.About)
		}
		seen[c.Name] = true
	}
	for name := range traits {
		if !seen[name] {
			t.Errorf("traits of %q, who is no contestant", name)
		}
	}
}

func TestOpenOfNobody(t *testing.T) {
	if _, err := Open[int]("nobody", Config{}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("Open: %v", err)
	}
	if _, err := OpenHTTP("nobody", Config{}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("OpenHTTP: %v", err)
	}
}

// A server that cannot do what a contestant needs is found out when it is opened.
func TestOpenOnTooLittle(t *testing.T) {
	fake := redistest.Fake(t)
	before := goleak.IgnoreCurrent()
	for name, trait := range traits {
		if !trait.real {
			continue
		}
		p, err := Open[int](name, config(fake, "p"))
		if err == nil {
			t.Errorf("%s is open", name)
			shut(t, p)
			continue
		}
		t.Logf("%s: %v", name, err)
	}
	leavesNothing(t, "", before)
}

// The user that only polls stays the same however often it is made, and hears of no channel.
func TestPollingUser(t *testing.T) {
	server := redistest.NewReal(t)
	rdb := server.Client(t)
	var first string
	for range 2 {
		p, err := Open[[]byte]("stockade polling", config(server, "p"))
		if err != nil {
			t.Fatal(err)
		}
		o := &origin{value: "v", takes: 50 * time.Millisecond}
		o.want(t, p, "k", "v", o.loads.Load()+1)
		shut(t, p)
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		user := rdb.Do(t.Context(), "ACL", "LIST").String()
		if first == "" {
			first = user
		}
		if user != first || !strings.Contains(user, pollingUser) {
			t.Errorf("users: %s, at first %s", user, first)
		}
	}
	if channels := rdb.PubSubChannels(t.Context(), "*").Val(); len(channels) != 0 {
		t.Errorf("channels: %v", channels)
	}
}
