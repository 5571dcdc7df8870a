package report

import (
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	figures := func(loads float64) map[string]float64 { return map[string]float64{"loads": loads} }
	r := &Report{
		Peers: []Peer{{Name: "none"}, {Name: "rival"}, {Name: "broken"}, {Name: "slow"}, {Name: "elsewhere"}},
		Scenarios: []Scenario{{
			Name: "cold", Figures: []Figure{{Name: "loads", Unit: "ms", Best: Lower}},
			Rows: []Measurement{
				{Case: "a", Contestant: "none", Figures: figures(1000)},
				{Case: "a", Contestant: "rival", Figures: figures(2)},
				{Case: "a", Contestant: "broken", Error: "refused"},
				{Case: "a", Contestant: "slow", Figures: figures(1), Error: "late"},
				{Case: "b", Contestant: "elsewhere", Figures: figures(7)},
			},
		}},
	}
	got, err := r.Markdown([]Column{{Scenario: "cold", Figure: "loads", Title: "loads", Failed: "never"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "| | loads |\n|---|---|\n| none | 1,000 ms |\n| rival | **2 ms** |\n| broken | never |\n| slow | 1 ms † |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, c := range []Column{{Scenario: "cold", Figure: "p99"}, {Scenario: "warm", Figure: "loads"}} {
		if _, err := r.Markdown([]Column{c}); err == nil || !strings.Contains(err.Error(), c.Figure) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
