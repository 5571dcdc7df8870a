package peers

import (
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// Half the TTL is what jitter and an early refresh may take off. Twice as long is what a copy in the process may add, to a
// second that the TTL is rounded up to.
func TestValuesExpire(t *testing.T) {
	each(t, func(t *testing.T, server redistest.Server, i int) {
		t.Parallel()
		c := All[[]byte]()[i]
		conf := config(server, "brief "+c.Name)
		conf.TTL = 300 * time.Millisecond
		p := open(t, c, conf)
		defer shut(t, p)
		o := &origin{value: "old"}
		o.want(t, p, "k", "old", 1)
		if traits[c.Name].late {
			o.wantHit(t, p, "k")
		}
		began := time.Now()
		o.value = "new"
		o.wantSoon(t, p, "k", "new")
		if took := time.Since(began); took < conf.TTL/2 {
			t.Errorf("a TTL of %v was over after %v", conf.TTL, took)
		}
	})
}
