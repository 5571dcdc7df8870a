package herd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/bench/origin"
)

func TestAsAnswer(t *testing.T) {
	locked := errors.New("the lock is taken")
	for _, tc := range []struct{ err, want error }{
		{nil, errNoError},
		{origin.ErrFailed, nil},
		{fmt.Errorf("load: %w", origin.ErrFailed), nil},
		{errors.New("elsewhere: " + origin.ErrFailed.Error()), nil},
		{locked, locked},
	} {
		if got := asAnswer(tc.err); got != tc.want {
			t.Errorf("asAnswer(%v) = %v, want %v", tc.err, got, tc.want)
		}
	}
}

func TestBegunBefore(t *testing.T) {
	until := time.Now()
	begun := []origin.Begun{{At: until.Add(-time.Second)}, {At: until.Add(-1)}, {At: until}, {At: until.Add(time.Second)}}
	if got := begunBefore(begun, until); got != 2 {
		t.Errorf("%d, want 2", got)
	}
}

func TestFailing(t *testing.T) {
	t.Parallel() // it mostly waits
	b := newBench(t)
	const lasts = 600 * time.Millisecond
	// One load in 100 ms and the 20 ms that it takes, and one that may have begun at the edge.
	for contestant, most := range map[string]float64{"singleflight": 2 * 50, "stockade": (600/120 + 1) / lasts.Seconds()} {
		got := measured(t, b, failingCase(2, 5, 20*time.Millisecond, lasts, 1, nil), contestant).Figures
		if got["rate"] <= 0 || got["rate"] > most || got["answers"] < 20 || got["others"] != 0 {
			t.Errorf("%s: %v loads a second, want at most %v; %v answers a second, %v %% other errors",
				contestant, got["rate"], most, got["answers"], got["others"])
		}
	}
}
