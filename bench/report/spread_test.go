package report

import "testing"

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
		text   string
	}{
		{nil, spread{}, "0"},
		{[]float64{7}, spread{7, 7, 7}, "7"},
		{[]float64{108, 103, 104}, spread{104, 103, 108}, "104 (103–108)"},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4}, "2.5 (1–4)"},
		{[]float64{100.1, 100.2, 100.3}, spread{100.2, 100.1, 100.3}, "100"},
		{[]float64{-1, 0, 2000}, spread{0, -1, 2000}, "0 (-1–2,000)"},
	} {
		got := spreadOf(c.values)
		text := cell{spread: got, Known: true}
		if got != c.want || text.head()+text.tail() != c.text {
			t.Errorf("%v: got %v, printed as %s; want %v, %s", c.values, got, text.head()+text.tail(), c.want, c.text)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.15: "0.15", 0.1234: "0.123", 0.0000123: "1.23e-05", 1.005: "1", 1.056: "1.06", 9.999: "10", 23.44: "23.4", 99.97: "100",
		104.4: "104", 999.7: "1,000", 1447: "1,447", 12345678: "12,345,678", 100000: "100,000", -0.5: "-0.5", -123: "-123", -1447: "-1,447", 3e20: "3e+20",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 500: "500", 1000: "1k", 2500: "2.5k", 1e6: "1M", 3e9: "3G"} {
		if got := tick(v); got != want {
			t.Errorf("tick(%v) = %s, want %s", v, got, want)
		}
	}
}
