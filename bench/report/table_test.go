package report

import (
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	s := cold()
	tables := s.tables()
	if len(tables) != 2 || tables[0].Case != "4 × 250 callers, 100 ms" || tables[1].Case != "20 × 50 callers, 100 ms" {
		t.Fatalf("got %d tables, want the two cases in their order", len(tables))
	}
	rows := map[string]row{}
	for i, r := range tables[0].Rows {
		if r.Contestant != contestants[i] {
			t.Errorf("row %d is %s, want the order of first appearance: %s", i, r.Contestant, contestants[i])
		}
		rows[r.Contestant] = r
	}
	if r := rows["rueidis"]; !slices.Equal(r.Errors, []string{"error: dial tcp 127.0.0.1:6379: connect: connection refused"}) || r.Cells[0].Known {
		t.Errorf("a contestant that failed in all rounds: %+v", r)
	}
	if r := rows["redislock"]; !slices.Equal(r.Errors, []string{"error in round 2: 3 of 1000 callers: redislock: not obtained"}) || !r.Cells[0].Known {
		t.Errorf("a contestant that failed in one round: %+v", r)
	}
	if r := rows["rueidis tracked"]; r.Cells[1].Known || !r.Cells[2].Known {
		t.Errorf("a contestant without one figure: %+v", r)
	}
}

func TestBest(t *testing.T) {
	for _, c := range []struct {
		best   Best
		median []float64
		failed int // the row with an error
		want   string
	}{
		{Lower, []float64{3, 1, 2}, -1, ".*."},
		{Higher, []float64{3, 1, 2}, -1, "*.."},
		{Either, []float64{3, 1, 2}, -1, "..."},
		{Lower, []float64{1.001, 1.002, 2}, -1, "**."},
		{Lower, []float64{0, 0, 0}, -1, "..."},
		{Lower, []float64{3, 1, 2}, 1, "..*"},
		{Lower, []float64{5}, -1, "."},
	} {
		s := Scenario{Figures: []Figure{{Name: "f", Best: c.best}}}
		for i, v := range c.median {
			m := Measurement{Contestant: string(rune('a' + i)), Figures: map[string]float64{"f": v}}
			if i == c.failed {
				m.Error = "broken"
			}
			s.Rows = append(s.Rows, m)
		}
		var got strings.Builder
		for _, r := range s.tables()[0].Rows {
			got.WriteString(map[bool]string{true: "*", false: "."}[r.Cells[0].Best])
		}
		if got.String() != c.want {
			t.Errorf("%s of %v: best are %s, want %s", c.best, c.median, got.String(), c.want)
		}
	}
}
