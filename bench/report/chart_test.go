package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestZeroOnALogarithmicAxis(t *testing.T) {
	a := logAxis([]float64{0, 1, 1000}, true)
	a.From, a.To = 100, 400
	if zero, one, most := a.at(0), a.at(1), a.at(1000); zero != 100 || one < 110 || most != 400 {
		t.Errorf("0, 1 and 1000 are at %v, %v and %v: want the beginning, somewhat behind it, and the end", zero, one, most)
	}
	if got := a.ticks(5); !slices.Equal(got, []float64{1, 10, 100, 1000}) {
		t.Errorf("ticks are %v", got)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis axis
		want []float64
	}{
		{linearAxis([]float64{531}, true), []float64{0, 200, 400}},
		{linearAxis([]float64{0, 100}, false), []float64{0, 20, 40, 60, 80, 100}},
		{linearAxis([]float64{-3, 1}, true), []float64{-3, -2, -1, 0, 1}},
		{logAxis([]float64{100, 104}, false), []float64{100, 101, 102, 103, 104}},
		{logAxis([]float64{1, 40}, false), []float64{1, 2, 5, 10, 20}},
		{logAxis([]float64{1, 1e12}, false), []float64{1, 1e3, 1e6, 1e9, 1e12}},
		{logAxis([]float64{0, -1}, true), []float64{-1, -0.8, -0.6, -0.4, -0.2, 0}},
	} {
		if got := c.axis.ticks(5); fmt.Sprintf("%.6g", got) != fmt.Sprintf("%.6g", c.want) {
			t.Errorf("%+v: ticks are %v, want %v", c.axis, got, c.want)
		}
	}
}

func TestMiddleRound(t *testing.T) {
	round := func(ys ...float64) Measurement {
		var points []Point
		for i, y := range ys {
			points = append(points, Point{float64(i), y})
		}
		return Measurement{Series: map[string][]Point{"s": points}}
	}
	got := middle([]Measurement{round(9, 9), round(1, 1), {Error: "no series"}, round(0, 7, 8)}, "s")
	if !slices.Equal(got, []Point{{0, 0}, {1, 7}, {2, 8}}) {
		t.Errorf("got %v, want the round whose mean is in the middle", got)
	}
}

// Every error is in its chart, beside the bar or below the axis, and only errors are.
func TestErrorsInCharts(t *testing.T) {
	r := fixture()
	p := newPalette(r)
	for i, want := range []int{2, 0, 1, 1, 0} {
		s := &r.Scenarios[i]
		drawn := s.pictures(p, slugs{})[0].Draw(p.fixed(false), false)
		if got := strings.Count(drawn, `style="fill:`+roles["error"].light+`"`); got != want {
			t.Errorf("%s has %d errors, want %d", s.Name, got, want)
		}
	}
}

func TestLooksDiffer(t *testing.T) {
	p := newPalette(fixture())
	seen := map[string]string{}
	for _, name := range contestants {
		l := p.looks[name]
		line := fmt.Sprint(l.shade, l.dash, l.mark)
		if other := seen[line]; other != "" {
			t.Errorf("the lines of %s and %s look alike", name, other)
		}
		seen[line] = name
		if l.ours != strings.HasPrefix(name, "stockade") {
			t.Errorf("%s is taken for one of ours, or is not", name)
		}
	}
	alone := newPalette(&Report{Peers: []Peer{{Name: "stockade"}}})
	if alone.looks["stockade"].shade != p.looks["stockade"].shade {
		t.Error("stockade has another colour where it is alone")
	}
}

func TestNamesOfFiles(t *testing.T) {
	r := fixture()
	taken := slugs{}
	var got []string
	for i := range r.Scenarios {
		for _, c := range r.Scenarios[i].pictures(newPalette(r), taken) {
			got = append(got, c.Name)
		}
	}
	for _, want := range []string{"cold-loads-4-250-callers-100-ms", "cold-commands", "rolling-latency", "avalanche-queries-no-jitter"} {
		if !slices.Contains(got, want) {
			t.Errorf("no chart is called %s: %v", want, got)
		}
	}
	if a, b, c := taken.unique("../A b"), taken.unique("a/b"), taken.unique("缓存"); a != "a-b" || b != "a-b-2" || c != "x" {
		t.Errorf("got %s, %s, %s", a, b, c)
	}
}
