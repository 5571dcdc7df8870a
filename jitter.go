package stockade

import (
	"math"
	"time"
)

// Every random decision is a pure function of a duration and a number u drawn from [0, 1).

// jittered draws a lifetime from ((1−jitter)·ttl, ttl]: it only shortens, so that a TTL is a promise.
// Keys that are written together expire apart.
func jittered(ttl time.Duration, jitter, u float64) time.Duration {
	return max(ttl-time.Duration(jitter*u*float64(ttl)), time.Millisecond)
}

// elected reports whether a read of a fresh value should refresh it early: "XFetch", Vattani, Chierichetti and
// Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015: now − cost·β·ln(u) ≥ expiry.
// Times are in µs of one clock; cost is what the last load took. Only the last half of the lifetime elects, so that a
// load that takes longer than the lifetime is not refreshed by every read.
func elected(now, begin, expiry, cost int64, beta, u float64) bool {
	if beta <= 0 || now-begin < (expiry-begin)/2 {
		return false
	}
	// 1−u is in (0, 1]: its logarithm is finite.
	return float64(now)-float64(cost)*beta*math.Log(1-u) >= float64(expiry)
}

const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
	// firstAwokenPoll is the first poll of a waiter whose subscription is live: the wake comes first but for a lost
	// message. Polls then come at about 64, 160, 300 ms …, so a wait is prolonged by less than its own length.
	firstAwokenPoll = 64 * time.Millisecond
)

// pollDelay is the pause before a waiter asks again, growing from first by half each time, up to 250 ms, spread over
// (1 ± spread) of it so that the waiters of a fleet do not ask together.
func pollDelay(first time.Duration, attempt int, spread, u float64) time.Duration {
	d := min(float64(first)*math.Pow(1.5, float64(attempt)), float64(lastPoll))
	return time.Duration(d * (1 - spread + 2*spread*u))
}
