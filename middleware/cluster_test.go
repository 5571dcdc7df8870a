package middleware

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The keys of one URL share a slot, those of others do not, and all tags do: nothing asks for two slots in one step.
func TestClusterMiddleware(t *testing.T) {
	servers := redistest.Cluster(t)
	d := &versioned{fields: map[string]string{"Vary": "Accept-Language", "Cache-Tag": "red, blue"}}
	client := func() *redis.ClusterClient { return servers.Client(t) }
	here, there := newSite(t, client(), tagged, d.ServeHTTP), newSite(t, client(), tagged, d.ServeHTTP)
	const paths = 20
	ask := func(version int) {
		t.Helper()
		for i := range paths {
			for _, lang := range []string{"de", "en"} {
				for _, s := range []*site{here, there} {
					s.wantBody(fmt.Sprintf("v%d for %s", version, lang), fmt.Sprint("/", i), "Accept-Language: "+lang)
				}
			}
		}
	}
	ask(0)
	here.wantRuns("one for each variant", 2*paths)
	there.wantRuns("elsewhere", 0)
	d.version.Store(1)
	if err := there.mw.PurgeTag(t.Context(), "blue"); err != nil {
		t.Fatal(err)
	}
	ask(1)
	d.version.Store(2)
	for i := range paths {
		if err := there.mw.Purge(t.Context(), fmt.Sprint("http://host/", i)); err != nil {
			t.Fatal(err)
		}
	}
	ask(2)
	here.wantRuns("after both purges", 4*paths)
}
