package report

import "slices"

// spread is a figure over the rounds.
type spread struct {
	Median, Min, Max float64
}

// spreadOf changes the order of values. The median of an even number of values is the mean of the two in the middle.
func spreadOf(values []float64) spread {
	n := len(values)
	if n == 0 {
		return spread{}
	}
	slices.Sort(values)
	return spread{Median: values[(n-1)/2]/2 + values[n/2]/2, Min: values[0], Max: values[n-1]}
}

// String is the median alone: "104".
func (s spread) String() string { return number(s.Median) }

// Range is "103–108", or nothing when the rounds are printed alike.
func (s spread) Range() string {
	lo, hi := number(s.Min), number(s.Max)
	if lo == hi {
		return ""
	}
	return lo + "–" + hi
}
