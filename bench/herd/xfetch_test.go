package herd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

func TestEarly(t *testing.T) {
	const took = 100 * time.Millisecond
	for _, tc := range []struct {
		left time.Duration
		beta float64
		u    float64
		want bool
	}{
		{0, 1, 1, true},
		{1, 1, 1, false},
		{-1, 1, 1, true}, // it has expired
		{99 * time.Millisecond, 1, math.Exp(-1), true},
		{101 * time.Millisecond, 1, math.Exp(-1), false},
		{199 * time.Millisecond, 2, math.Exp(-1), true},
		{201 * time.Millisecond, 2, math.Exp(-1), false},
		{199 * time.Millisecond, 1, math.Exp(-2), true},
	} {
		if got := early(tc.left, took, tc.beta, tc.u); got != tc.want {
			t.Errorf("early(%v, %v, %v, %v) = %v", tc.left, took, tc.beta, tc.u, got)
		}
	}
}

// The law is what comes of the rule with reads at random times.
func TestLawOfXFetch(t *testing.T) {
	const (
		rate   = 1000.0
		took   = 50 * time.Millisecond
		rounds = 3000
	)
	random := rand.New(rand.NewPCG(1, 2))
	for _, beta := range betas {
		loads, gaps := 0, time.Duration(0)
		for range rounds {
			first := time.Duration(math.MinInt64) // when the first began, as what was left
			for left := longEnough(rate, took, beta); ; {
				left -= time.Duration(random.ExpFloat64() / rate * float64(time.Second))
				if first != math.MinInt64 && first-left > took {
					break
				}
				if !early(left, took, beta, 1-random.Float64()) {
					continue
				}
				if first == math.MinInt64 {
					first = left
					gaps += left
				}
				loads++
			}
		}
		number, ahead := float64(loads)/rounds, gaps/rounds
		t.Logf("β = %v: %.3f recomputations, %v ahead; the law says %.3f, %v", beta, number, ahead, recomputations(beta), gap(rate, took, beta))
		if want := recomputations(beta); math.Abs(number/want-1) > 0.06 {
			t.Errorf("β = %v: %v recomputations, want %v", beta, number, want)
		}
		if want := gap(rate, took, beta); math.Abs(ahead.Seconds()/want.Seconds()-1) > 0.06 {
			t.Errorf("β = %v: %v before the expiry, want %v", beta, ahead, want)
		}
	}
}

func TestGenerations(t *testing.T) {
	const load, ttl = 100 * time.Millisecond, time.Second
	from := time.Now()
	at := func(id, ms int) origin.Begun {
		return origin.Begun{ID: id, At: from.Add(time.Duration(ms) * time.Millisecond)}
	}
	all := expiriesOf([]origin.Begun{
		at(1, 0), at(2, 10), at(1, 149), // of key 1: within one and a half loads
		at(1, 1000), at(2, 1010), at(1, 1090), at(1, 1100),
		at(1, 2000), at(2, 2950),
	}, load)
	var loads []int
	for _, g := range all {
		loads = append(loads, g.loads)
	}
	if want := []int{2, 1, 3, 1, 1, 1}; !slices.Equal(loads, want) {
		t.Fatalf("loads of each expiry: %v, want %v", loads, want)
	}
	// Key 1 expires at 149+1100 and at 1100+1100, key 2 at 10+1100; what begins after 2.8 s may not be complete.
	got := meanOf(all, ttl, load, from.Add(500*time.Millisecond), from.Add(3*time.Second))
	wantGap := time.Duration((249+200+100)/3) * time.Millisecond
	if got.expiries != 3 || got.recomputations != 5.0/3 || got.gap != wantGap {
		t.Errorf("%+v, want 3 expiries of 5/3 recomputations, %v ahead", got, wantGap)
	}
	if got := meanOf(all, ttl, load, from.Add(2500*time.Millisecond), from.Add(2600*time.Millisecond)); got != (refreshed{}) {
		t.Errorf("%+v of no expiry", got)
	}
}

func TestEarlyRefresh(t *testing.T) {
	t.Parallel() // it mostly waits
	b := newBench(t)
	e := expiring{processes: 2, keys: 4, rate: 500, load: 30 * time.Millisecond, lasts: 1200 * time.Millisecond, betas: []float64{1}}
	for _, tc := range []struct {
		contestant  string
		least, most float64
	}{
		{"theory", math.E, math.E},
		{"xfetch", 1.1, 20}, // little is counted, and other tests run
		{"stockade", 1, 1},
	} {
		got := measured(t, b, earlyCase(e, 1), tc.contestant)
		if n := got.Figures[numberOf(1)]; n < tc.least || n > tc.most {
			t.Errorf("%s: %v recomputations for each expiry, want %v to %v", tc.contestant, n, tc.least, tc.most)
		}
		if len(got.Series["recomputations"]) == 0 || len(got.Series["gap"]) == 0 {
			t.Errorf("%s: no curves", tc.contestant)
		}
	}
}
