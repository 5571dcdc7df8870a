package stockade

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// A client that caches by itself must not bring back what was invalidated or set.
func TestAClientWithACacheOfItsOwn(t *testing.T) {
	s := redistest.Real(t)
	caching := func(o *redis.Options) { o.Protocol, o.ClientSideCacheConfig = 3, &redis.ClientSideCacheConfig{} }
	a, b := open[string](t, s.Client(t, caching)), open[string](t, s.Client(t, caching))
	for i := range 200 {
		v := fmt.Sprint(i)
		var err error
		if i%2 == 0 {
			err = a.Set(t.Context(), "k", v)
		} else {
			err = a.Invalidate(t.Context(), "k")
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Cache[string]{b, a} {
			if got, err := c.Get(t.Context(), "k", returns(v).Load); got != v || err != nil {
				t.Errorf("%d: got %q, %v", i, got, err)
			}
		}
	}
}
