package middleware

import (
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// RFC 9213 2.1, RFC 9651 4.2: a targeted field is read as a whole or not at all.
func TestParseTargeted(t *testing.T) {
	valued := func(name, value string) directive { return directive{name: name, value: value, valued: true} }
	named := func(name string) directive { return directive{name: name} }
	broken := func(name string) directive { return directive{name: name, broken: true} }
	for _, c := range []struct {
		lines string // separated by "|"
		want  directives
	}{
		{"max-age=60", directives{valued("max-age", "60")}},
		{" max-age=60 , \tno-store ", directives{valued("max-age", "60"), named("no-store")}},
		{"max-age=60|public", directives{valued("max-age", "60"), named("public")}},
		{"max-age=999999999999999", directives{valued("max-age", "999999999999999")}},
		{"max-age=1, public, max-age=2", directives{named("public"), valued("max-age", "2")}},
		{"max-age=60;foo;bar=baz; *x=?0, no-store;a=1", directives{valued("max-age", "60"), named("no-store")}},
		{"*a_b-c.d*=1", directives{valued("*a_b-c.d*", "1")}},

		// Of another type than the directive's: it is there, and says nothing.
		{`max-age="60"`, directives{broken("max-age")}},
		{"max-age=-1, max-stale=1.5", directives{broken("max-age"), broken("max-stale")}},
		{`no-cache="a, b", private=?1`, directives{broken("no-cache"), broken("private")}},
		{`a=x/y:z!, b=*t, c=:aGk=:, d=@1659578233, e=%"f%c3%bc", f=::`, directives{
			broken("a"), broken("b"), broken("c"), broken("d"), broken("e"), broken("f")}},
		{`a=(), b=( 1 "x";q=1  y ), c=("\"\\");r`, directives{broken("a"), broken("b"), broken("c")}},
	} {
		if got, ok := parseTargeted(strings.Split(c.lines, "|")); !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %+v, %v, want %+v", c.lines, got, ok, c.want)
		}
	}
	for _, line := range []string{
		"MaX-aGe=60", "max-age =60", "max-age= 60", "max-age=", "max-age=60,", ",max-age=60", "a,,b", "a b", "a;", "a;=1", "a;B", "a;b=",
		"1a", "max-age=60, &&&&&", "a=1000000000000000", "a=-", "a=--1", "a=1.", "a=.5", "a=1.2345", "a=1234567890123.1", `a="x`, `a="\n"`,
		"a=\"\x7f\"", `a="é"`, "a=?", "a=?2", "a=:a", "a=:-:", "a=@1.5", "a=@x", `a=%"`, `a=%x`, `a=%"%C3"`, `a=%"%c"`, `a=%"%ff"`, "a=%\"\n\"", "a=(", "a=(1",
		"a=(1,2)", "a=(1\t2)", `a=("x""y")`, "a=(1;)", "a=!", "é", "a=é",
	} {
		if got, ok := parseTargeted([]string{line}); ok {
			t.Errorf("%q counts as %+v", line, got)
		}
	}
}

// Lines are members of one dictionary.
func FuzzParseTargeted(f *testing.F) {
	f.Add("max-age=60, a", `max-age="1";x=(`)
	f.Add(`a=(1 "x"), b=:aGk=:`, `c=%"f%c3%bc", a=@1`)
	f.Fuzz(func(t *testing.T, a, b string) {
		first, okA := parseTargeted([]string{a})
		second, okB := parseTargeted([]string{b})
		if !okA || !okB {
			return
		}
		want := append(slices.DeleteFunc(first, func(d directive) bool {
			return slices.ContainsFunc(second, func(e directive) bool { return e.name == d.name })
		}), second...)
		if len(first) == 0 || len(second) == 0 {
			return // an empty line is no member
		}
		if got, ok := parseTargeted([]string{a, b}); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q and %q: got %+v, %v, want %+v", a, b, got, ok, want)
		}
		for _, d := range want {
			if d.valued == d.broken && d.value != "" || d.name == "" || strings.ToLower(d.name) != d.name {
				t.Errorf("%q and %q: %+v", a, b, d)
			}
		}
	})
}

// RFC 9213 2.2: the first targeted field that is valid and not empty says all, as Cache-Control and Expires would.
func TestTargetedFields(t *testing.T) {
	route := Route{Targeted: []string{"Stockade-Cache-Control", "Cdn-Cache-Control"}}
	const none, ten = "Cache-Control: no-store", "Cache-Control: max-age=10"
	expires := "Expires: " + httpDate(time.Hour)
	for _, c := range []struct {
		fields  []string
		fresh   time.Duration
		refused string
	}{
		{[]string{"Cdn-Cache-Control: max-age=60", none}, time.Minute, ""},
		{[]string{"Cdn-Cache-Control: max-age=60", ten}, time.Minute, ""},
		{[]string{"Cdn-Cache-Control: max-age=1", ten}, time.Second, ""},
		{[]string{"Cdn-Cache-Control: foobar, max-age=99999999999"}, maxLifetime, ""},
		{[]string{"Cdn-Cache-Control: max-age=60", "Stockade-Cache-Control: max-age=5"}, 5 * time.Second, ""},
		{[]string{"Cdn-Cache-Control: max-age=60", "Stockade-Cache-Control: no-store"}, 0, "no-store"},
		{[]string{"Cdn-Cache-Control: max-age=60", "Stockade-Cache-Control: &"}, time.Minute, ""},
		{[]string{"Cdn-Cache-Control: max-age=60", "Stockade-Cache-Control: "}, time.Minute, ""},
		{[]string{"Cdn-Cache-Control: private", ten}, 0, "private"},
		{[]string{"Cdn-Cache-Control: no-cache", ten}, 0, "no-cache"},
		{[]string{"Cdn-Cache-Control: no-store", ten, expires}, 0, "no-store"},
		{[]string{"Cdn-Cache-Control: max-age=60", "Expires: 0"}, time.Minute, ""},
		{[]string{"Cdn-Cache-Control: max-age=0", expires}, 0, "no-freshness"},
		{[]string{"Cdn-Cache-Control: public", expires}, 0, "no-freshness"},
		{[]string{"Cdn-Cache-Control: max-age=60", "Age: 61"}, time.Minute, "no-freshness"},
		{[]string{`Cdn-Cache-Control: max-age="60"`, ten}, 0, "no-freshness"},
		{[]string{"Cdn-Cache-Control: max-age=60, &", ten}, 10 * time.Second, ""},
		{[]string{"Cdn-Cache-Control: max-age =60", none}, 0, "no-store"},
		{[]string{"Cdn-Cache-Control: max-age=60", none, "Set-Cookie: a=b"}, 0, "set-cookie"},
		{[]string{"Other-Cache-Control: max-age=60", ten}, 10 * time.Second, ""},
	} {
		terms, refused := route.storable(httptest.NewRequest("GET", "/", nil), 200, header(append(c.fields, "Date: "+httpDate(0))...), noon)
		if refused != c.refused || terms.fresh != c.fresh {
			t.Errorf("%q: fresh for %v, refused for %q, want %v and %q", c.fields, terms.fresh, refused, c.fresh, c.refused)
		}
	}
	if cc, targeted := (&Route{}).controlOf(header("Cdn-Cache-Control: no-store")); targeted || len(cc) > 0 {
		t.Errorf("a field that the route does not name counts: %v", cc)
	}
}

// A page that browsers may not store is shared here, and tells them so. Requests with Authorization may have it only if the
// field that counts allows that.
func TestATargetedPage(t *testing.T) {
	for field, alone := range map[string]int64{"max-age=60": 1, "max-age=60, public": 0} {
		s := serve(t, answers("page", "Cache-Control: no-store, public", "Stockade-Cache-Control: "+field), func(o *Options) {
			o.Targeted, o.Authorization = []string{"stockade-cache-control"}, true
		})
		for range 2 {
			w := s.wantBody("page", "/")
			want(t, "Cache-Control", w.Header().Get("Cache-Control"), "no-store, public")
		}
		s.wantRuns("two requests", 1)
		s.wantBody("page", "/", "Authorization: Basic x")
		s.wantRuns("one with Authorization, "+field, alone)
	}
}
