package tier

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func has(t *testing.T, tier *Tier, key, want string) {
	t.Helper()
	got := "nothing"
	if v := tier.Get(key); v != nil {
		got = v.(string)
	}
	if got != want {
		t.Errorf("%q has %s, want %s", key, got, want)
	}
}

// apart returns two keys whose changes are not noted together.
func apart(tier *Tier) (a, b string) {
	for i := 0; ; i++ {
		if b = strconv.Itoa(i); tier.stripe(b) != tier.stripe("a") {
			return "a", b
		}
	}
}

func TestPut(t *testing.T) {
	tier := New(10)
	key, other := apart(tier)
	has(t, tier, key, "nothing")
	tier.Put(key, "asked at 3", 3)
	has(t, tier, key, "asked at 3")
	tier.Put(key, "asked at 2, answered late", 2)
	has(t, tier, key, "asked at 3")
	tier.Put(key, "asked at 4", 4)
	has(t, tier, key, "asked at 4")
	has(t, tier, other, "nothing")
}

func TestForget(t *testing.T) {
	tier := New(10)
	key, other := apart(tier)
	tier.Put(key, "v", 1)
	tier.Put(other, "v", 1)
	tier.Forget(key, 5)
	has(t, tier, key, "nothing")
	has(t, tier, other, "v")
	tier.Put(key, "asked before the change", 4)
	tier.Put(key, "asked at the change", 5)
	tier.Put(other, "another key", 4)
	has(t, tier, key, "nothing")
	has(t, tier, other, "another key")
	tier.Put(key, "asked after it", 6)
	has(t, tier, key, "asked after it")
	tier.Forget(key, 3) // heard late
	tier.Put(key, "asked before the change", 4)
	has(t, tier, key, "nothing")
}

func TestForgetAll(t *testing.T) {
	tier := New(1000)
	for i := range 1000 {
		tier.Put(strconv.Itoa(i), "v", 1)
	}
	tier.ForgetAll(5)
	for i := range 1000 {
		has(t, tier, strconv.Itoa(i), "nothing")
		tier.Put(strconv.Itoa(i), "asked before", 4)
		has(t, tier, strconv.Itoa(i), "nothing")
	}
	tier.ForgetAll(3) // heard late
	tier.Put("a", "asked before", 4)
	has(t, tier, "a", "nothing")
	tier.Put("a", "asked after", 6)
	has(t, tier, "a", "asked after")
}

func TestItIsBounded(t *testing.T) {
	tier := New(100)
	for i := range 10_000 {
		tier.Put(strconv.Itoa(i), "v", uint64(i))
	}
	otter := tier.cache.(items)
	otter.CleanUp()
	if n := otter.EstimatedSize(); n > 100 || n < 50 {
		t.Errorf("%d entries", n)
	}
}

// After a change was noted, nothing that was asked for before it is had, whoever fills at that moment.
func TestFillsAmidChanges(t *testing.T) {
	for _, op := range []string{"one", "all"} {
		t.Run(op, func(t *testing.T) {
			tier := New(10)
			var numbers, version atomic.Uint64
			var done atomic.Bool
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for !done.Load() {
						number := numbers.Add(1)
						tier.Put("k", version.Load(), number)
						if rand.IntN(100) == 0 {
							tier.Put(strconv.Itoa(rand.IntN(100)), 0, numbers.Add(1))
						}
					}
				})
			}
			for range 2000 {
				v := version.Add(1)
				if number := numbers.Add(1); op == "one" {
					tier.Forget("k", number)
				} else {
					tier.ForgetAll(number)
				}
				for range 5 {
					if got := tier.Get("k"); got != nil && got.(uint64) < v {
						t.Errorf("had version %d after the change to %d", got, v)
					}
				}
			}
			done.Store(true)
			wg.Wait()
		})
	}
}
