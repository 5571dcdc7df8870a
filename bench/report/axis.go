package report

import "math"

// axis maps values to pixels, from the pixel From to the pixel To.
type axis struct {
	log      bool
	lo, hi   float64
	From, To float64
}

// logAxis begins at the least value above zero, or some way below it: then its bar can be seen, and zeros, which have no place on
// it, are below everything. Without a value above zero it is linear.
func logAxis(values []float64, below bool) axis {
	lo, hi := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if hi == 0 {
		return linearAxis(values, true)
	}
	if below || lo == hi {
		lo /= max(math.Pow(hi/lo, 0.1), 1.6)
	}
	return axis{log: true, lo: lo, hi: hi}
}

func linearAxis(values []float64, fromZero bool) axis {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		lo, hi = min(lo, v), max(hi, v)
	}
	if fromZero || lo > hi {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	if lo == hi {
		hi = lo + max(1, math.Abs(lo)/10)
	}
	return axis{lo: lo, hi: hi}
}

// at is where v is. What is off the axis is put at its end.
func (a axis) at(v float64) float64 {
	v = min(max(v, a.lo), a.hi)
	share := (v - a.lo) / (a.hi - a.lo)
	if a.log {
		share = math.Log(v/a.lo) / math.Log(a.hi/a.lo)
	}
	if !isNumber(share) { // the ends of the range of float64
		share = 0
	}
	return a.From + share*(a.To-a.From)
}

// ticks are about n round values.
func (a axis) ticks(n int) []float64 {
	n = max(n, 2)
	if a.log {
		if ticks := a.logTicks(n); len(ticks) > 1 {
			return ticks
		}
	}
	step := math.Pow(10, math.Floor(math.Log10((a.hi-a.lo)/float64(n))))
	for _, more := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if (a.hi-a.lo)/step > float64(n) {
			step *= more
		}
	}
	var ticks []float64
	first := math.Ceil(a.lo/step - 1e-9)
	for i := range 2 * n { // counted: beside a large lo, adding one step may change nothing
		if v := (first + float64(i)) * step; v <= a.hi+step*1e-9 {
			ticks = append(ticks, v)
		}
	}
	return ticks
}

// logTicks are powers of ten, every so many when there are a lot, with 2 and 5 between them when there are few.
func (a axis) logTicks(n int) []float64 {
	first, last := math.Floor(math.Log10(a.lo)), math.Ceil(math.Log10(a.hi))
	every := math.Max(1, math.Ceil((last-first)/float64(n)))
	factors := []float64{1}
	if decades := math.Log10(a.hi / a.lo); decades*3 <= float64(n) {
		factors = []float64{1, 2, 5}
	}
	var ticks []float64
	for e := first; e <= last; e += every {
		for _, f := range factors {
			if v := f * math.Pow(10, e); v >= a.lo && v <= a.hi*(1+1e-9) {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}
