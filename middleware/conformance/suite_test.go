package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// runTimeout is ten times what a run takes.
const runTimeout = time.Minute

// An edition is what a version of the suite consists of. Its authors publish with it what they measured.
type edition struct {
	Suites    []suite
	Published []measurement
}

type suite struct {
	Name  string
	Cases []testCase
}

type testCase struct {
	ID        string
	Kind      string   // see the constants
	DependsOn []string // the cases that must pass for this one to say anything
}

// The kinds of cases.
const (
	required = "required" // RFC 9111 demands it
	optimal  = "optimal"  // a response could have been reused
	check    = "check"    // only asks what a cache does: neither answer is wrong
)

// A measurement is what the suite found out about a cache.
type measurement struct {
	Name, Version string
	Results       results
}

// results has the outcome of each case that was run.
type results map[string]outcome

// An outcome is why a case failed; it is empty when the case passed.
type outcome string

// UnmarshalJSON reads what the suite writes: true, or a pair of an error's name and its message. "Setup" is the name when
// the case could not be set up.
func (o *outcome) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("true")) {
		*o = ""
		return nil
	}
	var failure [2]string
	if err := json.Unmarshal(text, &failure); err != nil {
		return err
	}
	*o = outcome(failure[0] + ": " + failure[1])
	return nil
}

// find returns the case of an id.
func (e edition) find(id string) (testCase, bool) {
	for _, s := range e.Suites {
		for _, c := range s.Cases {
			if c.ID == id {
				return c, true
			}
		}
	}
	return testCase{}, false
}

// judged returns the cases of which one answer is wrong.
func (e edition) judged() []testCase {
	var cases []testCase
	for _, s := range e.Suites {
		for _, c := range s.Cases {
			if c.Kind != check {
				cases = append(cases, c)
			}
		}
	}
	return cases
}

// needSuite skips the test, loudly, on a machine without the suite; a build server must have it.
func needSuite(t *testing.T) {
	t.Helper()
	_, nodeErr := exec.LookPath("node")
	_, suiteErr := os.Stat("testdata/node_modules")
	if nodeErr == nil && suiteErr == nil {
		return
	}
	const message = "NOT TESTED for conformance: the suite is not installed. With node and npm in PATH, run: make conformance-deps"
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name(), message)
	t.Skip(message)
}

func readEdition(t *testing.T) edition {
	t.Helper()
	var e edition
	run(t, &e, "suites.mjs")
	return e
}

// runSuite runs all cases against a server.
func runSuite(t *testing.T, base string) results {
	t.Helper()
	var r results
	run(t, &r, "runner.mjs", base)
	return r
}

// run runs a script to its end and reads the JSON that it prints.
func run(t *testing.T, into any, script string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{script}, args...)...)
	cmd.Dir, cmd.Stderr = "testdata", t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
}

// startOrigin starts the origin, which ends with the test.
func startOrigin(t *testing.T) *url.URL {
	t.Helper()
	cmd := exec.Command("node", "origin.mjs")
	cmd.Dir, cmd.Stderr = "testdata", t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = in.Close()
		<-drained
		_ = cmd.Wait()
	})
	base, err := listening(out)
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	if err != nil {
		t.Fatalf("start the origin: %v", err)
	}
	return base
}

// listening reads as far as the line that names the origin's address.
func listening(out io.Reader) (*url.URL, error) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, base, ok := strings.Cut(lines.Text(), "Listening on "); ok {
			return url.Parse(base)
		}
	}
	return nil, io.ErrUnexpectedEOF
}
