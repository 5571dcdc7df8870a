package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const exceptionsFile = "testdata/exceptions.json"

// exceptions lists the required and optimal cases that do not pass.
type exceptions []exception

// An exception is a reason, and what it holds for.
type exception struct {
	Reason   string
	Profiles []string // all of them when it is empty
	Cases    []string
}

func readExceptions(t *testing.T) exceptions {
	t.Helper()
	text, err := os.ReadFile(exceptionsFile)
	if err != nil {
		t.Fatal(err)
	}
	var list exceptions
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("%s: %v", exceptionsFile, err)
	}
	return list
}

// reason returns why a case does not pass in a profile, if it is listed.
func (l exceptions) reason(profile, id string) (string, bool) {
	for _, e := range l {
		if e.holdsFor(profile) && slices.Contains(e.Cases, id) {
			return e.Reason, true
		}
	}
	return "", false
}

func (e exception) holdsFor(profile string) bool {
	return len(e.Profiles) == 0 || slices.Contains(e.Profiles, profile)
}

// problems returns what is wrong with the list, whatever the results are.
func (l exceptions) problems(ed edition) []string {
	var problems []string
	complain := func(format string, args ...any) {
		problems = append(problems, exceptionsFile+": "+fmt.Sprintf(format, args...))
	}
	isProfile := func(name string) bool {
		return slices.ContainsFunc(profiles, func(p profile) bool { return p.name == name })
	}
	times := map[string]int{} // how often a case is listed for a profile
	for _, e := range l {
		if e.Reason == "" || len(e.Cases) == 0 {
			complain("a reason or its cases are missing: %+v", e)
		}
		for _, name := range e.Profiles {
			if !isProfile(name) {
				complain("there is no profile %q", name)
			}
		}
		for _, id := range e.Cases {
			if c, ok := ed.find(id); !ok {
				complain("the suite has no case %q", id)
			} else if c.Kind == check {
				complain("%s is not judged", id)
			}
			for _, p := range profiles {
				if !e.holdsFor(p.name) {
					continue
				}
				if times[p.name+" "+id]++; times[p.name+" "+id] == 2 {
					complain("%s is listed twice for %s", id, p.name)
				}
			}
		}
	}
	return problems
}

// failure returns why a case does not count as passed, or "". It counts only with all that it depends on.
func (e edition) failure(id string, r results) string {
	c, _ := e.find(id)
	for _, needed := range c.DependsOn {
		if e.failure(needed, r) != "" {
			return "depends on " + needed + ", which does not pass"
		}
	}
	got, ok := r[id]
	if !ok {
		return "was not run"
	}
	return string(got)
}

// judge returns what to complain about, given why a case failed and whether it is expected to.
func judge(failure string, listed bool) string {
	switch {
	case failure != "" && !listed:
		return failure
	case failure == "" && listed:
		return "passes: take it off " + exceptionsFile
	}
	return ""
}

var sample = edition{Suites: []suite{
	{Name: "First", Cases: []testCase{
		{ID: "a", Kind: check},
		{ID: "b", Kind: required, DependsOn: []string{"a"}},
		{ID: "c", Kind: optimal, DependsOn: []string{"b"}},
	}},
	{Name: "Second", Cases: []testCase{{ID: "d", Kind: required}}},
}}

func TestFailure(t *testing.T) {
	var r results
	if err := json.Unmarshal([]byte(`{"a": ["Setup", "status is 502"], "b": true, "c": true}`), &r); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"a": "Setup: status is 502",
		"b": "depends on a, which does not pass",
		"c": "depends on b, which does not pass",
		"d": "was not run",
	} {
		if got := sample.failure(id, r); got != want {
			t.Errorf("failure of %s = %q, want %q", id, got, want)
		}
	}
	r["a"] = ""
	if got := sample.failure("c", r); got != "" {
		t.Errorf("failure of c = %q, want none: all that it depends on passed", got)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		failure string
		listed  bool
		want    string // how the complaint begins; "" is none
	}{
		{"", false, ""},
		{"Assertion: x", true, ""},
		{"Assertion: x", false, "Assertion: x"},
		{"", true, "passes"},
	} {
		if got := judge(c.failure, c.listed); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("judge(%q, %v) = %q, want %q", c.failure, c.listed, got, c.want)
		}
	}
}

func TestProblemsOfTheExceptions(t *testing.T) {
	for _, c := range []struct {
		list exceptions
		want string // in the one problem; "" is none
	}{
		{exceptions{{Reason: "r", Cases: []string{"b", "c"}}, {Reason: "r", Cases: []string{"d"}}}, ""},
		{exceptions{{Reason: "r", Profiles: []string{"default"}, Cases: []string{"b"}}, {Reason: "s", Profiles: []string{"cookies"}, Cases: []string{"b"}}}, ""},
		{exceptions{{Cases: []string{"b"}}}, "missing"},
		{exceptions{{Reason: "r"}}, "missing"},
		{exceptions{{Reason: "r", Cases: []string{"e"}}}, `no case "e"`},
		{exceptions{{Reason: "r", Cases: []string{"a"}}}, "not judged"},
		{exceptions{{Reason: "r", Profiles: []string{"x"}, Cases: []string{"b"}}}, `no profile "x"`},
		{exceptions{{Reason: "r", Cases: []string{"b"}}, {Reason: "s", Profiles: []string{"default"}, Cases: []string{"b"}}}, "twice for default"},
	} {
		got := c.list.problems(sample)
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("problems of %+v = %q, want %q", c.list, got, c.want)
		}
	}
}
