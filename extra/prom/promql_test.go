package prom

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// exportedMetric is a name that a query may use.
type exportedMetric struct {
	labels map[string]map[string]bool // the values of each label
	part   bool                       // of a classic histogram
}

// everywhere are labels that the server adds.
var everywhere = []string{"job", "instance"}

// exportedBy returns what a registry exports, by name.
func exportedBy(t *testing.T, g prometheus.Gatherer) map[string]exportedMetric {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]exportedMetric{}
	for _, f := range families {
		m := exportedMetric{labels: map[string]map[string]bool{}}
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				if m.labels[l.GetName()] == nil {
					m.labels[l.GetName()] = map[string]bool{}
				}
				m.labels[l.GetName()][l.GetValue()] = true
			}
		}
		exported[f.GetName()] = m
		if f.GetType() == dto.MetricType_HISTOGRAM { // a native one has the name itself
			m.part = true
			exported[f.GetName()+"_count"], exported[f.GetName()+"_sum"] = m, m
			m.labels = maps.Clone(m.labels)
			m.labels["le"] = map[string]bool{}
			exported[f.GetName()+"_bucket"] = m
		}
	}
	return exported
}

// families are the names of what a registry exports.
func families(t *testing.T, g prometheus.Gatherer) (names []string) {
	t.Helper()
	list, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, f.GetName())
	}
	return names
}

// open are labels whose values are the user's, or many.
var open = []string{"cache", "locker", "op", "le"}

var (
	duration = regexp.MustCompile(`^(\d+(ms|[smhdwy]))+$`)
	// What the queries use of PromQL. The parser knows more than Prometheus does.
	ranged       = []string{"rate", "increase"}
	functions    = []string{"histogram_quantile"}
	aggregations = []string{"sum", "max", "count"}
	operators    = []string{"+", "-", "*", "/", ">", "<", ">=", "<=", "==", "!=", "and", "or", "unless"}
)

func isDuration(text string) bool { return duration.MatchString(text) }

// problems says what is wrong with a query, and notes which metrics it shows.
func problems(text string, exported map[string]exportedMetric, shown map[string]bool) []string {
	text = strings.ReplaceAll(text, "$__rate_interval", "5m")
	e, err := metricsql.Parse(text)
	if err != nil {
		return []string{"unparsed: " + err.Error()}
	}
	c := check{exported: exported, shown: shown}
	c.walk(e, false)
	return c.found
}

type check struct {
	exported map[string]exportedMetric
	shown    map[string]bool
	found    []string
}

func (c *check) bad(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// walk checks an expression and returns the names of the metrics in it. inRange says that it must be a range of a metric.
func (c *check) walk(e metricsql.Expr, inRange bool) (names []string) {
	if _, isRange := e.(*metricsql.RollupExpr); inRange && !isRange {
		c.bad("%s is without a range", e.AppendString(nil))
	}
	switch e := e.(type) {
	case *metricsql.NumberExpr, *metricsql.StringExpr:
	case *metricsql.MetricExpr:
		return c.metric(e)
	case *metricsql.RollupExpr:
		if (e.Window != nil) != inRange {
			c.bad("%s has a range outside of what takes one, or none", e.AppendString(nil))
		}
		if e.Step != nil || e.InheritStep || e.At != nil {
			c.bad("%s is a subquery", e.AppendString(nil))
		}
		for _, d := range []*metricsql.DurationExpr{e.Window, e.Offset} {
			if d != nil && !isDuration(string(d.AppendString(nil))) {
				c.bad("%s is not a duration of PromQL", d.AppendString(nil))
			}
		}
		return c.walk(e.Expr, false)
	case *metricsql.FuncExpr:
		takesRange := slices.Contains(ranged, e.Name)
		if !takesRange && !slices.Contains(functions, e.Name) {
			c.bad("%s is no function of PromQL that is expected", e.Name)
		}
		for _, arg := range e.Args {
			names = append(names, c.walk(arg, takesRange)...)
		}
	case *metricsql.AggrFuncExpr:
		if !slices.Contains(aggregations, e.Name) {
			c.bad("%s is no aggregation of PromQL that is expected", e.Name)
		}
		if e.Limit != 0 {
			c.bad("a limit is no PromQL")
		}
		for _, arg := range e.Args {
			names = append(names, c.walk(arg, false)...)
		}
		c.labels(names, e.Modifier.Args)
	case *metricsql.BinaryOpExpr:
		if !slices.Contains(operators, e.Op) || e.KeepMetricNames {
			c.bad("%s is no operator of PromQL that is expected", e.Op)
		}
		names = append(c.walk(e.Left, false), c.walk(e.Right, false)...)
		c.labels(names, slices.Concat(e.GroupModifier.Args, e.JoinModifier.Args))
	default:
		c.bad("%T is not expected", e)
	}
	return names
}

// labels checks that all metrics have labels.
func (c *check) labels(names, labels []string) {
	for _, name := range names {
		for _, label := range labels {
			if m, ok := c.exported[name]; ok && m.labels[label] == nil && !slices.Contains(everywhere, label) {
				c.bad("%s has no label %s", name, label)
			}
		}
	}
}

// metric checks what a selector asks for.
func (c *check) metric(e *metricsql.MetricExpr) (names []string) {
	if len(e.LabelFilterss) != 1 {
		c.bad("%s: alternatives are no PromQL", e.AppendString(nil))
		return nil
	}
	for _, f := range e.LabelFilterss[0] {
		if f.Label == "__name__" && !f.IsNegative {
			names = []string{f.Value}
			if f.IsRegexp {
				names = strings.Split(f.Value, "|")
			}
		}
	}
	if len(names) == 0 {
		c.bad("%s has no name", e.AppendString(nil))
	}
	for _, name := range names {
		m, ok := c.exported[name]
		if !ok {
			c.bad("%s is not exported", name)
			continue
		}
		c.shown[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")] = true
		for _, f := range e.LabelFilterss[0] {
			if f.Label == "__name__" {
				continue
			}
			c.labels([]string{name}, []string{f.Label})
			if values := m.labels[f.Label]; values != nil && !f.IsRegexp && !slices.Contains(open, f.Label) && !values[f.Value] {
				c.bad("%s: %s is never %q", name, f.Label, f.Value)
			}
		}
	}
	return names
}
