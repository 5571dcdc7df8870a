package middleware

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestVaryOf(t *testing.T) {
	for fields, names := range map[string]string{
		"":                              "",
		"Vary: ":                        "",
		"Vary: Accept":                  "Accept",
		"Vary: x-b, ACCEPT,,x-a":        "Accept X-A X-B",
		"Vary: X-B|Vary: X-A|Vary: x-b": "X-A X-B", // in one order, each once
		"Content-Encoding: gzip":        "Accept-Encoding",
		"Content-Encoding: gzip|Vary: Accept-Encoding": "Accept-Encoding",
		"Content-Encoding: Identity":                   "",
		"Content-Encoding: br|Vary: X":                 "Accept-Encoding X",
	} {
		want(t, fields, strings.Join(varyOf(header(strings.Split(fields, "|")...)), " "), names)
	}
}

// RFC 9111 4.1: what selects the same variant, and what does not.
func TestVariant(t *testing.T) {
	of := func(fields ...string) string {
		v := &visit{route: &Route{}, r: &http.Request{Header: header(fields...)}}
		return v.variant([]string{"A", "B"})
	}
	for _, same := range [][2][]string{
		{{"A: x, y"}, {"A: x", "A: y"}},
		{{"A: x"}, {"A:  x\t"}},
		{{"A: x", "Other: 1"}, {"A: x", "Other: 2"}},
		{{"A: x", "B: y"}, {"B: y", "A: x"}},
		{nil, {"Other: 1"}},
	} {
		if of(same[0]...) != of(same[1]...) {
			t.Errorf("%q and %q select different variants", same[0], same[1])
		}
	}
	for _, differ := range [][2][]string{
		{{"A: "}, nil}, // empty is not absent
		{{"A: x"}, {"A: X"}},
		{{"A: x"}, {"B: x"}},
		{{"A: x", "A: y"}, {"A: y", "A: x"}},
		{{"A: x,y"}, {"A: x, y"}}, // what that means is the field's to say
		{{"A: x"}, {"A: x", "A: "}},
		{{"A: x", "B: y"}, {"A: xB", "B: y"}},
	} {
		if of(differ[0]...) == of(differ[1]...) {
			t.Errorf("%q and %q select one variant", differ[0], differ[1])
		}
	}
	plain := &visit{route: &Route{Cookies: []string{}}, r: &http.Request{Header: header("A: x")}}
	want(t, "without anything that selects", plain.variant(nil), "")
}

// Fields that negotiate select by what they say, not by its case and spaces.
func TestVariantOfNegotiation(t *testing.T) {
	for _, name := range []string{"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language"} {
		of := func(fields ...string) string {
			v := &visit{route: &Route{}, r: &http.Request{Header: header(fields...)}}
			return v.variant([]string{name})
		}
		said := of(name + ": a, b;q=1")
		for _, same := range [][]string{{name + ": A,B;Q=1"}, {name + ": a\t,  b;q=1 "}, {name + ": a", name + ": b;q=1"}, {name + ": a,,b;q=1"}} {
			if of(same...) != said {
				t.Errorf("%q selects another variant", same)
			}
		}
		if of(name+": b;q=1, a") == said {
			t.Errorf("the order of %s does not select, by which handlers may go", name)
		}
	}
}

// What a route's Key says and its cookies select too.
func TestVariantOfRoute(t *testing.T) {
	of := func(extra string, cookies ...string) string {
		v := &visit{route: &Route{Cookies: []string{"a", "b"}}, extra: extra, r: &http.Request{Header: header(cookies...)}}
		return v.variant(nil)
	}
	if of("", "Cookie: a=1; z=1") != of("", "Cookie: z=2; a=1") {
		t.Error("a cookie selects that the route does not name")
	}
	if of("", "Cookie: a=1; b=2") != of("", "Cookie: b=2", "Cookie: a=1") {
		t.Error("the order of cookies selects")
	}
	all := []string{
		of(""), of("x"), of("a"), of("", "Cookie: a=1"), of("", "Cookie: a=2"), of("", "Cookie: a="), of("", "Cookie: b=1"), of("", "Cookie: a=1; b=1"),
		of("", "Cookie: a=1; a=1"), of("", "Cookie: a=1; a=2"), of("", "Cookie: a=2; a=1"), of("x", "Cookie: a=1"),
		of("", "Cookie: a=b"), of("", "Cookie: b=b"), of("", "Cookie: a=b; a=x"), of("", "Cookie: b=b; b=x"), // which value is whose
	}
	slices.Sort(all)
	want(t, "variants", len(slices.Compact(all)), 16)
}

// Clients get their own variant, whatever order the handler names the fields in, and each is made once.
func TestVariants(t *testing.T) {
	lists := []string{"Accept, Accept-Language", "accept-language, ACCEPT", "Accept-Language,Accept"}
	var s *site
	s = serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Vary", lists[int(s.runs.Load())%len(lists)])
		_, there := r.Header["Accept"]
		if !there {
			_, _ = io.WriteString(w, "none")
		}
		_, _ = io.WriteString(w, strings.Join(r.Header["Accept"], "+")+"/"+r.Header.Get("Accept-Language"))
	})
	for range 3 {
		for fields, body := range map[string]string{
			"Accept: a": "a/", "Accept: b": "b/", "Accept: a|Accept-Language: en": "a/en", "": "none/", "Accept: ": "/",
		} {
			want(t, fields, bodyOf(t, s.get("http://a.example/", slices.DeleteFunc(strings.Split(fields, "|"), func(f string) bool { return f == "" })...)), body)
		}
	}
	wantRuns(t, s, 5)
	want(t, "why a new variant is made", s.get("http://a.example/", "Accept: c").Header.Get("Cache-Status"), "stockade; fwd=vary-miss; fwd-status=200; stored")
}

// The variants of a URL are bounded. Those beyond are made for each request.
func TestMaxVariants(t *testing.T) {
	s := serve(t, answers("page", "Cache-Control: max-age=60", "Vary: X"), func(o *Options) { o.MaxVariants = 2 })
	for range 2 {
		for _, x := range []string{"1", "2", "3"} {
			s.get("http://a.example/", "X: "+x)
		}
	}
	wantRuns(t, s, 4)
}

func TestIndexCovers(t *testing.T) {
	x := &index{Vary: []string{"A", "B"}}
	for names, is := range map[string]bool{"": true, "A": true, "A B": true, "C": false, "A C": false} {
		want(t, names, x.covers(strings.Fields(names)), is)
	}
	want(t, "union", strings.Join(union([]string{"B", "A"}, []string{"C", "B"}), " "), "A B C")
}

// FuzzVary: requests select one variant only when they have the same fields with the same values.
func FuzzVary(f *testing.F) {
	f.Add("a", "b", "a", "b", uint8(0))
	f.Add("", "", "", "", uint8(1))
	f.Add("a, b", "", "a", "b", uint8(2))
	f.Add("true", "x", "", "truex", uint8(7))
	f.Fuzz(func(t *testing.T, a, b, a2, b2 string, absent uint8) {
		of := func(a, b string, absent uint8) ([2]string, string) {
			h, values := http.Header{}, [2]string{"absent", "absent"}
			for i, value := range []string{a, b} {
				if absent>>i&1 == 0 {
					h[string(rune('A'+i))], values[i] = []string{value}, "is "+strings.Trim(value, " \t")
				}
			}
			return values, (&visit{route: &Route{}, r: &http.Request{Header: h}}).variant([]string{"A", "B"})
		}
		values, digest := of(a, b, absent)
		values2, digest2 := of(a2, b2, absent>>2)
		if same := digest == digest2; same != (values == values2) {
			t.Errorf("%q and %q: same variant %v", values, values2, same)
		}
	})
}
