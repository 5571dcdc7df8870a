package script

import (
	"fmt"
	"strings"
)

var steps = []*step{get, acquire, renew, commit, touch, drop, fail, release, set, invalidate, expire, take, unlock}

// Mutate breaks a step, so that a test can show that it notices: it replaces old, which must occur, by replacement. Only
// tests call it, before their clients run; restore, when these have ended, puts the step back.
func Mutate(name, old, replacement string) (restore func()) {
	s := named(name)
	if !strings.Contains(s.source, old) {
		panic(fmt.Sprintf("step %s has no %q", name, old))
	}
	whole := *s
	*s = *compose(name, strings.Replace(s.source, old, replacement, 1), "")
	return func() { *s = whole }
}

func named(name string) *step {
	for _, s := range steps {
		if s.name == name {
			return s
		}
	}
	panic("no step " + name)
}

// StepOf names the step that a command runs, "" when it runs none. Only tests ask.
func StepOf(command []string) string {
	if len(command) < 2 || command[0] != "evalsha" && command[0] != "eval" {
		return ""
	}
	for _, s := range steps {
		if command[1] == s.hash || command[1] == s.source {
			return s.name
		}
	}
	return ""
}
