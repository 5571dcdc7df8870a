package report

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"
)

const attack = `<script>alert("x")</script><img src="http://evil.example/x">'"&]]>` + "\x00"

// hostile puts markup wherever a report has text.
func hostile(r *Report) *Report {
	for _, text := range []*string{&r.Command, &r.Profile, &r.Method, &r.Machine.CPU, &r.Machine.OS, &r.Machine.Redis, &r.Machine.Modules[0].Path,
		&r.Peers[0].Name, &r.Peers[0].About, &r.Peers[0].Settings} {
		*text += attack
	}
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		for _, text := range []*string{&s.Name, &s.Number, &s.Title, &s.About, &s.Figures[0].Title, &s.Figures[0].Unit, &s.Figures[0].About} {
			*text += attack
		}
		for k := range s.Charts {
			c := &s.Charts[k]
			c.Cases, c.Contestants = nil, nil
			for _, text := range []*string{&c.Name, &c.Title, &c.XTitle, &c.YTitle} {
				*text += attack
			}
		}
		for k := range s.Rows {
			s.Rows[k].Contestant += attack
			s.Rows[k].Error += attack
			s.Rows[k].Case += attack
		}
	}
	return r
}

func TestPageEscapes(t *testing.T) {
	page := content(t, written(t, hostile(fixture())), "index.html")
	for _, markup := range []string{"<script", "<img", "\x00", "ZgotmplZ"} {
		if strings.Contains(page, markup) {
			t.Errorf("the page contains %q", markup)
		}
	}
	selfContained(t, page)
}

func TestPageShowsEverything(t *testing.T) {
	r := fixture()
	page := content(t, written(t, r), "index.html")
	want := []string{"prefers-color-scheme:dark", `name="viewport"`, r.Command, "17m31s", "20 November 2026", "Example 9000", "v9.23.0", "3 rounds", "7 rows with an error",
		"Not its default: wait 5 s", "Redis is empty before each.", "12.1 ms (11.9–15.2)", "1,000", "42,234–44,955", "缓存 &lt;b&gt;&amp;amp;",
		"error: dial tcp 127.0.0.1:6379: connect: connection refused", "error in round 2: 3 of 1000 callers"}
	for _, s := range r.Scenarios {
		want = append(want, `href="#s-`+s.Name+`"`, `id="s-`+s.Name+`"`, s.Title)
	}
	for _, p := range r.Peers {
		want = append(want, p.About)
	}
	for _, text := range want {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not contain %q", text)
		}
	}
	if got := strings.Count(page, "<svg"); got != 14 {
		t.Errorf("the page has %d charts, want 14", got)
	}
	selfContained(t, page)
}

// selfContained fails for whatever makes a browser fetch something.
func selfContained(t *testing.T, page string) {
	t.Helper()
	tokens(t, "index.html", page, false, func(token xml.Token) {
		switch token := token.(type) {
		case xml.StartElement:
			if !slices.Contains(harmless, token.Name.Local) {
				t.Errorf("the page has an element %s", token.Name.Local)
			}
			for _, a := range token.Attr {
				local := strings.HasPrefix(a.Value, "#") || a.Value == "measurements.csv" || a.Value == "report.json"
				if slices.Contains([]string{"src", "srcset", "href", "data", "action", "poster"}, a.Name.Local) && !local {
					t.Errorf("%s refers to %q", token.Name.Local, a.Value)
				}
				if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(strings.ToLower(a.Value), "url(") {
					t.Errorf("%s has %s=%q", token.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			for _, fetch := range []string{"url(", "@import", "@font-face"} {
				if strings.Contains(string(token), fetch) {
					t.Errorf("the page has %s", fetch)
				}
			}
		}
	})
}

// None of these fetches anything but by the attributes that are looked at.
var harmless = strings.Fields("html head meta title style body header main section nav h1 h2 h3 p span small b i a ol ul li div dl dt dd pre " +
	"table thead tbody tr th td details summary figure svg g path rect text")

func TestTile(t *testing.T) {
	s := cold()
	got, ok := newTile(part{Scenario: &s, ID: "s-cold", Cases: []caseView{{table: s.tables()[0]}}})
	if !ok || got.Ours != "stockade" || got.Value != "1" || len(got.Compared) != 2 {
		t.Fatalf("got %+v", got)
	}
	if none, other := got.Compared[0], got.Compared[1]; none.Value != "1,000" || other.Name != "rockscache" {
		t.Errorf("compared with %+v and %+v; who had an error is not the best", none, other)
	}
	s.Figures = s.Figures[4:]
	if _, ok := newTile(part{Scenario: &s, Cases: []caseView{{table: s.tables()[0]}}}); ok {
		t.Error("there is a tile although no figure is better or worse")
	}
}
