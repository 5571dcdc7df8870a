package prom

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"go.yaml.in/yaml/v3"
)

// query is one of the dashboard or of the alerts.
type query struct{ where, text string }

// alert is a rule of alerts.yml.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `yaml:"name"`
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(readFile(t, "alerts.yml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 12 {
		t.Fatalf("found %d alerts", len(all))
	}
	return all
}

// dashboardQueries returns those of the panels, and the metrics that variables take their values from.
func dashboardQueries(t *testing.T) (panels, variables []query) {
	t.Helper()
	var file struct {
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name  string `json:"name"`
				Type  string `json:"type"`
				Query any    `json:"query"`
			} `json:"list"`
		} `json:"templating"`
	}
	if err := json.Unmarshal([]byte(readFile(t, "dashboard.json")), &file); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	places := map[[2]int]string{}
	known := []string{"__rate_interval"}
	for _, p := range file.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		place := [2]int{p.GridPos.X, p.GridPos.Y}
		if other, taken := places[place]; taken {
			t.Errorf("%q lies on %q", p.Title, other)
		}
		places[place] = p.Title
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			panels = append(panels, query{p.Title, target.Expr})
		}
	}
	values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, v := range file.Templating.List {
		known = append(known, v.Name)
		if v.Type != "query" {
			continue
		}
		text, _ := v.Query.(map[string]any)["query"].(string)
		m := values.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("the variable %s has the query %q", v.Name, text)
			continue
		}
		variables = append(variables, query{"variable " + v.Name, "count by (" + m[2] + ") (" + m[1] + ")"})
	}
	for _, q := range slices.Concat(panels, variables) {
		for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(q.text, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s: %s names the variable %s, which is none", q.where, q.text, m[1])
			}
		}
	}
	if len(panels) < 30 {
		t.Fatalf("found %d queries", len(panels))
	}
	return panels, variables
}

// The queries of the dashboard and of the alerts are PromQL, and ask for what is exported, by labels that it has.
func TestQueries(t *testing.T) {
	panels, variables := dashboardQueries(t)
	queries := slices.Concat(panels, variables)
	for _, a := range alerts(t) {
		queries = append(queries, query{"alert " + a.Alert, a.Expr})
	}
	exported := exportedBy(t, fed(t))
	shown := map[string]bool{}
	for _, q := range queries {
		for _, problem := range problems(q.text, exported, shown) {
			t.Errorf("%s: %s: %s", q.where, q.text, problem)
		}
	}
	for name, m := range exported {
		if !m.part && !shown[name] && !unshown[name] {
			t.Errorf("nothing shows %s", name)
		}
	}
}

// unshown are metrics that neither the dashboard nor an alert needs: others say the same.
var unshown = map[string]bool{
	"stockade_joined_reads_total":      true,
	"stockade_refreshes_total":         true,
	"stockade_refreshes_skipped_total": true,
	"stockade_ignored_keys_total":      true,
}

// What the test of the queries must find.
func TestProblemsOfQueries(t *testing.T) {
	exported := exportedBy(t, fed(t))
	for text, want := range map[string]string{
		`sum(rate(stockade_loads_total[5m])`:                                                   "unparsed",
		`rate(stockade_loadz_total[5m])`:                                                       "stockade_loadz_total is not exported",
		`rate(stockade_loads_total{resul="x"}[5m])`:                                            "no label resul",
		`rate(stockade_reads_total{result="gone"}[5m])`:                                        `result is never "gone"`,
		`rate(stockade_reads_total{result!="gone"}[5m])`:                                       `result is never "gone"`,
		`sum by (outcome) (rate(stockade_loads_total[5m]))`:                                    "no label outcome",
		`sum by (le) (rate(stockade_load_seconds[5m]))`:                                        "no label le",
		`sum by (locker) (stockade_flights)`:                                                   "no label locker",
		`rate(stockade_loads_total)`:                                                           "without a range",
		`stockade_loads_total[5m]`:                                                             "a range outside",
		`rate(stockade_loads_total[5i])`:                                                       "not a duration",
		`rate(stockade_loads_total[5m:1m])`:                                                    "a subquery",
		`rollup(stockade_loads_total[5m])`:                                                     "no function of PromQL",
		`stockade_flights default 0`:                                                           "no operator of PromQL",
		`median(stockade_flights)`:                                                             "no aggregation of PromQL",
		`sum(stockade_flights) limit 3`:                                                        "limit",
		`{result="fresh"}`:                                                                     "no name",
		`sum by (cache) (rate(stockade_reads_total{result="fresh",job=~"x"}[5m])) / 2`:         "",
		`histogram_quantile(0.9, sum by (le, cache) (rate(stockade_load_seconds_bucket[5m])))`: "",
		`histogram_quantile(0.9, sum by (cache) (rate(stockade_load_seconds[5m] offset 1h)))`:  "",
		`count by (job) ({__name__=~"stockade_loads_total|stockade_locks_held"})`:              "",
		`count by (job) ({__name__=~"stockade_loads_total|stockade_lox"})`:                     "stockade_lox is not exported",
		`sum(rate(stockade_loads_ended_total{outcome="stored"}[5m])) > 5 and stockade_loading`: "",
	} {
		got := strings.Join(problems(text, exported, map[string]bool{}), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestAlerts(t *testing.T) {
	names := map[string]bool{}
	sections := anchors(readFile(t, "../../docs/operations.md"))
	const runbooks = "https://github.com/stockade-cache/stockade/blob/main/docs/operations.md#"
	for _, a := range alerts(t) {
		if names[a.Alert] || !strings.HasPrefix(a.Alert, "Stockade") {
			t.Errorf("%q is no name, or is there twice", a.Alert)
		}
		names[a.Alert] = true
		if s := a.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if a.For != "" && !isDuration(a.For) {
			t.Errorf("%s: for %q", a.Alert, a.For)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary, or no description", a.Alert)
		}
		anchor, ok := strings.CutPrefix(a.Annotations["runbook_url"], runbooks)
		if !ok || !slices.Contains(sections, anchor) {
			t.Errorf("%s: %q is no section of docs/operations.md, which are %q", a.Alert, a.Annotations["runbook_url"], sections)
		}
		// A label that the message names must be left over by the query.
		e, err := metricsql.Parse(a.Expr)
		if err != nil {
			t.Errorf("%s: %v", a.Alert, err)
			continue
		}
		for _, text := range a.Annotations {
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				metricsql.VisitAll(e, func(e metricsql.Expr) {
					if aggregate, ok := e.(*metricsql.AggrFuncExpr); ok && !slices.Contains(aggregate.Modifier.Args, m[1]) {
						t.Errorf("%s names the label %s, which %s does not leave", a.Alert, m[1], aggregate.AppendString(nil))
					}
				})
			}
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
