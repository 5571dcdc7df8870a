package report

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// number prints three digits of v, all those of the whole part, and no zeros at the end: 0.15, 23.4, 104, 1,447.
func number(v float64) string {
	size := math.Abs(v)
	switch {
	case size == 0:
		return "0"
	case size < 0.001 || size >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(size))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return grouped(text)
}

// grouped separates thousands: 1,447. Fractions are left alone.
func grouped(text string) string {
	whole, fraction, found := strings.Cut(text, ".")
	start := len(whole) % 3
	if strings.HasPrefix(whole, "-") {
		start = 1 + (len(whole)-1)%3
	}
	var b strings.Builder
	for i, digit := range whole {
		if i > 0 && i >= start && (i-start)%3 == 0 && whole[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	if found {
		b.WriteString("." + fraction)
	}
	return b.String()
}

// tick is a number on an axis, where there is little room: 1k, 2.5M.
func tick(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return number(v/unit.size) + unit.name
		}
	}
	return number(v)
}

// head is a figure's title with its unit: "p99, ms".
func (f Figure) head() string {
	if f.Unit == "" {
		return f.Title
	}
	return f.Title + ", " + f.Unit
}

// milliseconds prints a duration of the noise.
func milliseconds(d time.Duration) string {
	return number(float64(d) / float64(time.Millisecond))
}

// String is "12.1 ms (11.9–15.2)", or nothing when it was not measured.
func (n Noise) String() string {
	if n.Median <= 0 {
		return ""
	}
	return milliseconds(n.Median) + " ms (" + milliseconds(n.Min) + "–" + milliseconds(n.Max) + ")"
}
