package stockade

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// readmeRights returns the rights that the README gives to a user, as the words of a command, for our prefix.
func readmeRights(t *testing.T) []any {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		if strings.HasPrefix(line, "ACL SETUSER") {
			var words []any
			for _, w := range strings.Fields(strings.ReplaceAll(line, "product:", "test:")) {
				words = append(words, w)
			}
			return words
		}
	}
	t.Fatal("no ACL SETUSER in README.md")
	return nil
}

// The rights that the README names are enough, and so are they without the channel.
func TestTheRightsOfTheReadmeAreEnough(t *testing.T) {
	s := redistest.Real(t)
	admin := s.Client(t)
	for _, without := range []string{"", "&test:*"} {
		if err := admin.Do(t.Context(), "ACL", "DELUSER", "app").Err(); err != nil {
			t.Fatal(err)
		}
		var rights []any
		for _, w := range readmeRights(t) {
			if w != without {
				rights = append(rights, w)
			}
		}
		if err := admin.Do(t.Context(), rights...).Err(); err != nil {
			t.Fatal(err)
		}
		if without != "" {
			if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "resetchannels").Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		user := func(o *redis.Options) { o.Username, o.Password = "app", "secret" }
		refused := func(o *Options) {
			o.Observer.Redis = func(e RedisEvent) { t.Errorf("without %q: %+v", without, e) }
			o.StaleFor = time.Hour
		}
		a, b := open[string](t, s.Client(t, user), refused), open[string](t, s.Client(t, user), refused)
		o := fails(100*time.Millisecond, nil)
		var wg sync.WaitGroup
		for _, c := range []*Cache[string]{a, b} {
			wg.Go(func() {
				if _, err := c.Get(t.Context(), "waited"+without, o.Load); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantLoads(t, o, 1)
		for _, err := range []error{
			a.Set(t.Context(), "k", "v"), a.Set(t.Context(), "l", "v"), a.Expire(t.Context(), "k"),
			a.Invalidate(t.Context(), "k", "l"), a.SetEntry(t.Context(), "e", Entry[string]{TTL: time.Second}),
		} {
			if err != nil {
				t.Errorf("without %q: %v", without, err)
			}
		}
		if _, err := a.Get(t.Context(), "failing"+without, fails(0, errSource).Load); err == nil {
			t.Error("no error")
		}
		if without == "" {
			redistest.Eventually(t, 5*time.Second, "the subscription is up", func() bool { return a.view.bus.Live() || b.view.bus.Live() })
		}
	}
	if err := admin.Do(t.Context(), "ACL", "DELUSER", "app").Err(); err != nil {
		t.Fatal(err)
	}
}
