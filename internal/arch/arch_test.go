// Package arch holds the structure of the repository as tests: which package may import which, and what every file
// of a kind must say. It reads the source of every module, whatever build tags it carries.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root = "../.." // of the repository, seen from here

	module    = "github.com/stockade-cache/stockade"
	goRedis   = "github.com/redis/go-redis/v9"
	xSync     = "golang.org/x/sync"
	msgpack   = "github.com/vmihailenco/msgpack/v5"
	otter     = "github.com/maypok86/otter/v2"
	miniredis = "github.com/alicebob/miniredis/v2"
	goleak    = "go.uber.org/goleak"
	porcupine = "github.com/anishathalye/porcupine"
	sqlite    = "modernc.org/sqlite"
	xxhash    = "github.com/cespare/xxhash/v2"

	prometheus = "github.com/prometheus/client_golang"
	otel       = "go.opentelemetry.io/otel"
	promModel  = "github.com/prometheus/client_model" // what a scrape consists of
	metricsql  = "github.com/VictoriaMetrics/metricsql"
	yaml       = "go.yaml.in/yaml/v3"
	redsync    = "github.com/go-redsync/redsync/v4"

	script    = module + "/internal/script"
	bus       = module + "/internal/bus"
	tier      = module + "/internal/tier"
	tasks     = module + "/internal/tasks"
	held      = module + "/internal/held"
	redisd    = module + "/internal/redisd"
	redistest = module + "/internal/redistest"
	locktest  = module + "/internal/locktest"
	anything  = "*"
)

// A rule is one row of the table in docs/design.md: what the packages of a folder may import besides the standard
// library. An import is allowed with all packages below it, except for the root's, which is allowed alone.
type rule struct {
	folder string   // "a/..." is a and all folders below it
	code   []string // what its code may import
	tests  []string // what its tests may import as well, besides the package itself
}

var rules = []rule{
	{".", []string{goRedis, xSync, msgpack, script, bus, tier, tasks, held}, []string{miniredis, goleak, porcupine, otter, redistest, locktest}},
	{"internal/script", []string{goRedis}, []string{miniredis, goleak, porcupine, redistest}},
	{"internal/bus", []string{goRedis}, []string{miniredis, goleak, redistest}},
	{"internal/tier", []string{otter}, []string{goleak}},
	{"internal/tasks", nil, []string{goleak}},
	{"internal/held", []string{tasks}, []string{goleak}},
	{"internal/redisd", nil, nil},
	{"internal/redistest", []string{goRedis, miniredis, goleak, redisd}, nil},
	{"internal/locktest", []string{module}, nil},
	{"internal/arch", nil, nil},
	{"middleware/...", []string{module, goRedis, tasks, module + "/middleware"}, []string{miniredis, goleak, redistest}},
	{"bloom", []string{module, goRedis, xxhash}, []string{miniredis, goleak, redistest}},
	{"extra/redlock", []string{module, goRedis, redsync, script, tasks, held}, []string{miniredis, redistest, locktest}},
	{"extra/...", []string{module, module + "/extra", goRedis, prometheus, otel}, []string{miniredis, goleak, redistest, locktest, promModel, metricsql, yaml}},
	{"examples/...", []string{module, module + "/middleware", module + "/bloom", module + "/examples", module + "/extra/prom", prometheus, goRedis, miniredis, sqlite}, []string{goleak}},
	{"bench/...", []string{anything}, nil}, // nobody imports it
}

func TestImports(t *testing.T) {
	for _, file := range files(t, ".go") {
		folder := filepath.ToSlash(filepath.Dir(file))
		rule, ok := ruleOf(folder)
		if !ok {
			t.Errorf("%s: %s is in no row of the table: add one here and in docs/design.md", file, folder)
			continue
		}
		allowed := rule.code
		if strings.HasSuffix(file, "_test.go") {
			allowed = slices.Concat(rule.code, rule.tests, []string{importPath(folder)})
		}
		for _, imported := range importsOf(t, file) {
			if !isStandard(imported) && !matches(imported, allowed) {
				t.Errorf("%s imports %s, which the row %q of the table does not allow", file, imported, rule.folder)
			}
		}
	}
}

func TestRuleOf(t *testing.T) {
	for folder, want := range map[string]string{
		".": ".", "internal/script": "internal/script", "examples": "examples/...", "examples/lock": "examples/...",
		"internal/script/deep": "", "internal": "", "examplesque": "",
	} {
		if got, _ := ruleOf(folder); got.folder != want {
			t.Errorf("ruleOf(%q) = %q, want %q", folder, got.folder, want)
		}
	}
	if matches(module+"/internal/script", []string{module}) {
		t.Error("who may import the root may import what is below it")
	}
	if matches(goRedis+"x", []string{goRedis}) || !matches(goRedis+"/maintnotifications", []string{goRedis}) {
		t.Error("a module must be allowed with its packages, and only with them")
	}
}

// A direct requirement of the root is a dependency of every user: a new one needs an entry in docs/decisions.md.
func TestRequirements(t *testing.T) {
	var (
		code  = []string{goRedis, xSync, msgpack, otter, xxhash}
		tests = []string{miniredis, goleak, porcupine}
	)
	requirement := regexp.MustCompile(`^(?:require )?\s*([\w./~-]+\.[\w./~-]+) v\S+$`) // without "// indirect"
	for line := range strings.Lines(read(t, "go.mod")) {
		m := requirement.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m != nil && !slices.Contains(slices.Concat(code, tests), m[1]) {
			t.Errorf("go.mod requires %s directly", m[1])
		}
	}
}

// A step's header is all that its caller sees.
func TestScriptHeaders(t *testing.T) {
	for _, file := range files(t, ".lua") {
		if filepath.Base(file) == "prelude.lua" { // no step: it stands before each of them
			continue
		}
		header := headerOf(read(t, file))
		for _, word := range []string{"KEYS", "ARGV", "Returns"} {
			if !regexp.MustCompile(`(?m)^-- ` + word + `\b`).MatchString(header) {
				t.Errorf("%s: its header has no line that begins with %q", file, word)
			}
		}
	}
}

// headerOf returns the comment at the beginning of a Lua file.
func headerOf(source string) string {
	var header strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		header.WriteString(line)
	}
	return header.String()
}

// Packages come from wherever the machine is set up to take them from, and everything else is in the repository: no
// file names a host of a registry or a folder of one machine.
func TestNoMachine(t *testing.T) {
	host := func(labels ...string) string { return strings.Join(labels, ".") } // so that this file does not name one either
	hosts := []string{
		host("proxy", "golang", "org"), host("sum", "golang", "org"), host("deb", "debian", "org"), host("archive", "ubuntu", "com"),
		host("registry", "npmjs", "org"), host("files", "pythonhosted", "org"), host("docker", "io"), host("goproxy", "io"), host("goproxy", "cn"),
	}
	absolute := regexp.MustCompile(`(^|[^\w./~-])/(work|root|home|Users)/\w`)
	for _, file := range files(t, "") {
		text := read(t, file)
		if strings.ContainsRune(text, 0) { // no text: a binary or a profile that was left here
			continue
		}
		for _, host := range hosts {
			if strings.Contains(text, host) {
				t.Errorf("%s names the host %s", file, host)
			}
		}
		if found := absolute.FindString(text); found != "" {
			t.Errorf("%s names a folder of one machine: %q", file, found)
		}
	}
}

// The Makefile runs the tests that start a cluster or a sentinel trio by their names.
func TestNamesOfClusterTests(t *testing.T) {
	starts := regexp.MustCompile(`\b(?:redistest\.)?(?:Cluster|Sentinel)\(t\b`)
	name := regexp.MustCompile(`^(?:Cluster|Sentinel)`)
	found := 0
	for _, file := range files(t, "_test.go") {
		for _, test := range strings.Split(read(t, file), "\nfunc Test")[1:] {
			if !starts.MatchString(test) {
				continue
			}
			found++
			if title, _, _ := strings.Cut(test, "("); !name.MatchString(title) {
				t.Errorf("%s: Test%s does not begin with TestCluster or TestSentinel: make cluster would not run it", file, title)
			}
		}
	}
	if found < 16 {
		t.Errorf("found %d tests that start a cluster or a sentinel trio", found)
	}
}

// What the README says of the conformance suite is what was measured.
func TestConformanceFigures(t *testing.T) {
	m := regexp.MustCompile(`\| \*\*all\*\* \| (\d+)/(\d+) `).FindStringSubmatch(read(t, "middleware/conformance/results.md"))
	if m == nil {
		t.Fatal("results.md has no row of all suites")
	}
	for file, sentence := range map[string]string{
		"README.md":       "Of " + m[2] + " *required* cases of\nthe conformance suite http-cache-tests " + m[1] + " pass",
		"README.zh-CN.md": m[2] + " 个 *required* 用例中通过 " + m[1] + " 个",
	} {
		if !strings.Contains(read(t, file), sentence) {
			t.Errorf("%s does not say %q", file, sentence)
		}
	}
}

// uncovered are the invariants that no test names yet. It only shrinks.
var uncovered = []string{}

// An invariant of docs/design.md is named by a test that would fail without it.
func TestInvariants(t *testing.T) {
	var invariants []string
	for _, m := range regexp.MustCompile(`\*\*(I\d+)\b`).FindAllStringSubmatch(read(t, "docs/design.md"), -1) {
		invariants = append(invariants, m[1])
	}
	if len(invariants) < 13 {
		t.Fatalf("docs/design.md lists the invariants %v, want I1 to I13", invariants)
	}
	named := map[string]string{} // by which file
	for _, file := range files(t, "_test.go") {
		if strings.HasPrefix(filepath.ToSlash(file), "internal/arch/") {
			continue
		}
		for _, name := range regexp.MustCompile(`\bI\d+\b`).FindAllString(read(t, file), -1) {
			named[name] = file
		}
	}
	for _, invariant := range invariants {
		file, covered := named[invariant]
		switch listed := slices.Contains(uncovered, invariant); {
		case covered && listed:
			t.Errorf("%s names %s: take it off the list of uncovered invariants", file, invariant)
		case !covered && !listed:
			t.Errorf("no test names %s of docs/design.md", invariant)
		}
	}
	for _, name := range slices.Sorted(slices.Values(uncovered)) {
		if !slices.Contains(invariants, name) {
			t.Errorf("uncovered lists %s, which docs/design.md does not have", name)
		}
	}
}

func ruleOf(folder string) (rule, bool) {
	for _, r := range rules {
		tree, isTree := strings.CutSuffix(r.folder, "/...")
		if folder == tree || isTree && strings.HasPrefix(folder, tree+"/") {
			return r, true
		}
	}
	return rule{}, false
}

func matches(imported string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return a == anything || imported == a || a != module && strings.HasPrefix(imported, a+"/")
	})
}

// isStandard reports whether a package is of the standard library: its first element is no host.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func importPath(folder string) string {
	if folder == "." {
		return module
	}
	return module + "/" + folder
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range parsed.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		paths = append(paths, path)
	}
	return paths
}

// files returns all files of the repository whose names end with suffix, as paths below its root.
func files(t *testing.T, suffix string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if name == ".git" && entry.IsDir() || entry.IsDir() && name == "testdata" {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() && name != ".git" && strings.HasSuffix(name, suffix) {
			below, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			found = append(found, below)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no file ends with %q: the tests do not see the repository", suffix)
	}
	return found
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
