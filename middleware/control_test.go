package middleware

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseControl(t *testing.T) {
	valued := func(name, value string) directive { return directive{name: name, value: value, valued: true} }
	named := func(name string) directive { return directive{name: name} }
	broken := func(name string) directive { return directive{name: name, broken: true} }
	for _, c := range []struct {
		lines string // separated by "|"
		want  directives
	}{
		{"", nil},
		{" , ,\t,", nil},
		{"no-store", directives{named("no-store")}},
		{"No-Store, MAX-AGE=60", directives{named("no-store"), valued("max-age", "60")}},
		{"max-age=60,public", directives{valued("max-age", "60"), named("public")}},
		{" \tmax-age=60 \t,\tpublic ", directives{valued("max-age", "60"), named("public")}},
		{"max-age=60|s-maxage=5|public", directives{valued("max-age", "60"), valued("s-maxage", "5"), named("public")}},
		{"max-age=1, max-age=2", directives{valued("max-age", "1"), valued("max-age", "2")}},

		{`max-age="60"`, directives{valued("max-age", "60")}},
		{`private="Set-Cookie, X", max-age=1`, directives{valued("private", "Set-Cookie, X"), valued("max-age", "1")}},
		{`a="x\"y\\, no-store", b`, directives{valued("a", `x"y\, no-store`), named("b")}},
		{`a="", b`, directives{valued("a", ""), named("b")}},

		{"max-age=, public", directives{broken("max-age"), named("public")}},
		{"max-age = 60", directives{broken("max-age")}},
		{"max-age= 60", directives{broken("max-age")}},
		{"max-age=6 0, public", directives{broken("max-age"), named("public")}},
		{"max-age=-1", directives{valued("max-age", "-1")}}, // a token, that is no number
		{"max-age=(1)", directives{broken("max-age")}},
		{`max-age="60"x, public`, directives{broken("max-age"), named("public")}},
		{"no-store x", directives{broken("no-store")}},
		{`"no-store", public`, directives{named("public")}},
		{"=60, public", directives{named("public")}},
		{`@ "a, b" no-store, public`, directives{named("public")}},

		// A quote that never ends does not hide what is beyond the comma.
		{`x="y, no-store`, directives{broken("x"), named("no-store")}},
		{`x=y"z, no-store`, directives{broken("x"), named("no-store")}},
		{`x="y\", no-store`, directives{broken("x"), named("no-store")}},
		{`x="y|no-store`, directives{broken("x"), named("no-store")}},
	} {
		if got := parseControl(strings.Split(c.lines, "|")); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %+v, want %+v", c.lines, got, c.want)
		}
	}
}

func TestDirectives(t *testing.T) {
	cc := parseControl([]string{`private="X", max-age=7, max-age=8, s-maxage=x, no-cache=, min-fresh, max-stale="9"`})
	for _, name := range []string{"private", "max-age", "no-cache", "s-maxage"} {
		want(t, "has "+name, cc.has(name), true)
	}
	want(t, "has no-store", cc.has("no-store"), false)
	want(t, "has the start of a name", cc.has("max"), false)
	for name, seconds := range map[string]time.Duration{"max-age": 7, "s-maxage": 0, "min-fresh": 0, "max-stale": 9} {
		d, found := cc.seconds(name)
		want(t, name, d, seconds*time.Second)
		want(t, name+" found", found, true)
	}
	_, found := cc.seconds("stale-if-error")
	want(t, "stale-if-error found", found, false)
}

func TestDeltaSeconds(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"0", 0, true},
		{"60", time.Minute, true},
		{"0060", time.Minute, true},
		{"2147483648", 2147483648 * time.Second, true}, // RFC 9111 1.2.2
		{"99999999999999999999999999", maxLifetime, true},
		{strings.Repeat("9", 1000), maxLifetime, true},
		{"", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1.5", 0, false},
		{" 1", 0, false},
		{"1s", 0, false},
		{"9999999999999999999999999x", 0, false},
		{"١", 0, false}, // a digit, but none of ASCII
	} {
		got, ok := deltaSeconds(c.text)
		if got != c.want || ok != c.ok {
			t.Errorf("%q: got %v, %v, want %v, %v", c.text, got, ok, c.want, c.ok)
		}
	}
}

func TestToken(t *testing.T) {
	for s, is := range map[string]bool{
		"a": true, "A9!#$%&'*+-.^_`|~": true,
		"": false, "a b": false, "a,": false, `"a"`: false, "a=b": false, "a/b": false, "(a)": false, "a:b": false, "a\x00": false, "ä": false,
	} {
		want(t, "isToken "+s, isToken(s), is)
	}
}

func TestList(t *testing.T) {
	h := header(`X: a, "b, c" ,,d`, "X: ", "X: \te ")
	want(t, "list", strings.Join(list(h, "X"), "|"), `a|"b, c"|d|e`)
	want(t, "list of nothing", len(list(h, "Y")), 0)
	h = header(`X: a"b, c`)
	want(t, "a quote that never ends", strings.Join(list(h, "X"), "|"), `a"b|c`)
	h = header(`X: "a, b" "c, d`)
	want(t, "the second quote never ends", strings.Join(list(h, "X"), "|"), `"a, b" "c|d`)
	h = header(`X: "a\", b", c`)
	want(t, "a quote in quotes", strings.Join(list(h, "X"), "|"), `"a\", b"|c`)
}

// FuzzControl: what is written reads the same, and a directive is found wherever it stands alone between commas.
func FuzzControl(f *testing.F) {
	for _, line := range []string{
		"", "max-age=60", `private="Set-Cookie, X", max-age="1"`, "max-age=, x=(", `a="b`, `a="b\`, `a=b"c, d"`, `"a", b`, `a="\\\""`, "a=\"\x00\xff\"", ",,a=,", "a b=c", `"`, `x="y\", z`,
	} {
		f.Add(line, "public")
	}
	f.Fuzz(func(t *testing.T, line, other string) {
		parsed := parseControl([]string{line, other})
		if again := parseControl([]string{parsed.String()}); !reflect.DeepEqual(again, parsed) {
			t.Errorf("%q, %q is %+v; written as %q it is %+v", line, other, parsed, parsed.String(), again)
		}
		for _, d := range parsed {
			if !isToken(d.name) || d.name != strings.ToLower(d.name) || d.broken && (d.valued || d.value != "") || !d.valued && d.value != "" {
				t.Errorf("%q: %+v", line, d)
			}
			if s, _ := parsed.seconds(d.name); s < 0 || s > maxLifetime {
				t.Errorf("%q: %s is %v", line, d.name, s)
			}
		}
		if !parseControl([]string{"no-store," + line}).has("no-store") || !parseControl([]string{line, "no-store"}).has("no-store") {
			t.Errorf("%q hides no-store", line)
		}
		if !strings.Contains(line, `"`) && !parseControl([]string{line + ",no-store"}).has("no-store") {
			t.Errorf("%q hides no-store", line)
		}
	})
}
