package stockade

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Vattani et al.: with reads at a high rate r that elect by themselves, of which each election recomputes, the expected
// number of recomputations that are under way together is e^(1/β), and the first comes β·D·(ln(r·β·D) + γ) before the
// expiry on average.
func TestEarlyRefreshIsThatOfThePaper(t *testing.T) {
	const (
		cost = 100_000     // µs
		ttl  = 100_000_000 // µs: no election is cut off by the first half
		gap  = 500         // µs between two reads
		runs = 4000
	)
	const euler = 0.5772156649
	for _, beta := range []float64{0.5, 1, 2} {
		r := rand.New(rand.NewPCG(1, uint64(beta*10)))
		together, early := 0, 0.0
		for range runs {
			// Before that next to nothing is ever elected.
			now := int64(ttl - 12*beta*cost)
			first := int64(-1)
			for ; first < 0 || now < first+cost; now += gap {
				if !elected(now, 0, ttl, cost, beta, r.Float64()) {
					continue
				}
				if first < 0 {
					first = now
				}
				together++
			}
			early += float64(ttl - first)
		}
		near(t, "recomputations together", float64(together)/runs, math.Exp(1/beta))
		bd := beta * cost
		near(t, "the first is early by", early/runs, bd*(math.Log(bd/gap)+euler))
	}
}

// near allows 5 %.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.05*want {
		t.Errorf("%s: got %.4g, want %.4g", what, got, want)
	}
}

func TestElectedOnlyInTheLastHalf(t *testing.T) {
	const begin, expiry = 1_000_000, 3_000_000
	for _, c := range []struct {
		now, cost int64
		beta, u   float64
		want      bool
	}{
		{1_999_999, 1 << 40, 1, 0.999, false}, // a load that takes longer than the lifetime
		{2_000_000, 1 << 40, 1, 0.999, true},
		{2_999_999, 1, 1, 0, false}, // ln 1
		{3_000_000, 1, 1, 0, true},
		{2_999_999, 1 << 40, 0, 0.999, false}, // off
		{2_999_999, 1 << 40, -1, 0.999, false},
		{2_999_000, 1000, 1, 0.64, true}, // microseconds count: −ln 0.36 > 1
		{2_999_000, 1000, 1, 0.62, false},
		{2_000_000, 1 << 40, 1, math.Nextafter(1, 0), true},
	} {
		if got := elected(c.now, begin, expiry, c.cost, c.beta, c.u); got != c.want {
			t.Errorf("elected at %d, cost %d, β %v, u %v: got %v", c.now, c.cost, c.beta, c.u, got)
		}
	}
}

func TestJitteredOnlyShortens(t *testing.T) {
	const ttl, keys, buckets = time.Hour, 10_000, 50
	for _, jitter := range []float64{0.1, 0.5, 0.999} {
		r := rand.New(rand.NewPCG(2, 0))
		least := time.Duration((1 - jitter) * float64(ttl))
		var count [buckets]float64
		for range keys {
			d := jittered(ttl, jitter, r.Float64())
			if d <= least || d > ttl {
				t.Fatalf("jitter %v: %v is not in (%v, %v]", jitter, d, least, ttl)
			}
			count[min(int(float64(ttl-d)/(jitter*float64(ttl))*buckets), buckets-1)]++
		}
		// 49 degrees of freedom: beyond 95 once in 10,000.
		chi := 0.0
		for _, n := range count {
			chi += (n - keys/buckets) * (n - keys/buckets) / (keys / buckets)
		}
		if chi > 95 {
			t.Errorf("jitter %v: the spread is not even, χ² = %.1f", jitter, chi)
		}
	}
	for _, u := range []float64{0, 0.5, math.Nextafter(1, 0)} {
		want(t, "without jitter", jittered(ttl, 0, u), ttl)
		want(t, "the shortest", jittered(time.Millisecond, 0.999, u), time.Millisecond)
		if d := jittered(maxLifetime, 0.5, u); d < maxLifetime/2 || d > maxLifetime {
			t.Errorf("the longest: got %v", d)
		}
	}
}

func TestPollDelay(t *testing.T) {
	for _, c := range []struct {
		first  time.Duration
		spread float64
	}{{firstPoll, 0.5}, {firstAwokenPoll, 0.25}} {
		middle := func(attempt int) time.Duration {
			return time.Duration(min(float64(c.first)*math.Pow(1.5, float64(attempt)), float64(lastPoll)))
		}
		for _, attempt := range []int{0, 1, 2, 5, 9, 10, 100, 1 << 30} {
			m := float64(middle(attempt))
			least, most := pollDelay(c.first, attempt, c.spread, 0), pollDelay(c.first, attempt, c.spread, math.Nextafter(1, 0))
			want(t, "least", least, time.Duration(m*(1-c.spread)))
			if d := most - time.Duration(m*(1+c.spread)); d.Abs() > 1 {
				t.Errorf("attempt %d from %v: %v at most", attempt, c.first, most)
			}
			if least < time.Millisecond {
				t.Errorf("attempt %d from %v: %v is a spin", attempt, c.first, least)
			}
		}
		want(t, "in the end", middle(1<<30), lastPoll)
	}
}
