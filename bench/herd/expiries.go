package herd

import (
	"slices"
	"time"
)

// expiries returns how many loads a cache makes for these reads that loads each key once when a read finds it expired,
// ttl after its load ended. Every key is taken to be found expired by its first read.
func expiries(reads []Read, ttl, load time.Duration) int {
	slices.SortFunc(reads, func(x, y Read) int { return x.At.Compare(y.At) })
	until := map[int]time.Time{} // when a key expires
	loads := 0
	for _, read := range reads {
		if read.At.Before(until[read.ID]) {
			continue
		}
		loads++
		until[read.ID] = read.At.Add(load + ttl)
	}
	return loads
}
