package herd

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/stockade-cache/stockade/bench/report"
)

// noise is how long the same piece of work took at several times: what the machine's other tenants leave of it.
type noise []time.Duration

func (n *noise) sample() {
	began := time.Now()
	var sum [sha256.Size]byte
	for range 10_000 {
		sum = sha256.Sum256(sum[:])
	}
	*n = append(*n, time.Since(began))
}

func (n noise) summary() report.Noise {
	if len(n) == 0 {
		return report.Noise{}
	}
	sorted := slices.Sorted(slices.Values(n))
	return report.Noise{Median: sorted[len(sorted)/2], Min: sorted[0], Max: sorted[len(sorted)-1]}
}
