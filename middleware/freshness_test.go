package middleware

import (
	"net/http"
	"testing"
	"time"
)

// noon is when the responses of these tests come.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func httpDate(d time.Duration) string { return noon.Add(d).Format(http.TimeFormat) }

// RFC 9111 4.2.1: s-maxage, then max-age, then Expires minus Date.
func TestFreshnessLifetime(t *testing.T) {
	date := "Date: " + httpDate(0)
	expires := "Expires: " + httpDate(3*time.Minute)
	for _, c := range []struct {
		fields   []string
		want     time.Duration
		explicit bool
	}{
		{nil, 0, false},
		{[]string{"Cache-Control: public"}, 0, false},
		{[]string{"Cache-Control: max-age=60, s-maxage=120", date, expires}, 2 * time.Minute, true},
		{[]string{"Cache-Control: max-age=60", date, expires}, time.Minute, true},
		{[]string{"Cache-Control: max-age=60", "Cache-Control: s-maxage=120"}, 2 * time.Minute, true},
		{[]string{"Cache-Control: max-age=0", date, expires}, 0, true},
		{[]string{"Cache-Control: s-maxage=0, max-age=60"}, 0, true},
		{[]string{`Cache-Control: max-age="60"`}, time.Minute, true},
		{[]string{"Cache-Control: max-age=99999999999999999999"}, maxLifetime, true},

		// What cannot be read is stale, whatever else there is.
		{[]string{"Cache-Control: max-age=x", date, expires}, 0, true},
		{[]string{"Cache-Control: max-age", date, expires}, 0, true},
		{[]string{"Cache-Control: max-age=-5", date, expires}, 0, true},
		{[]string{"Cache-Control: max-age=1.5"}, 0, true},
		{[]string{"Cache-Control: s-maxage=x, max-age=60"}, 0, true},
		// The first of two.
		{[]string{"Cache-Control: max-age=60, max-age=1"}, time.Minute, true},
		{[]string{"Cache-Control: max-age=1", "Cache-Control: max-age=60"}, time.Second, true},

		{[]string{expires, date}, 3 * time.Minute, true},
		{[]string{expires}, 3 * time.Minute, true},
		{[]string{expires, "Date: yesterday"}, 3 * time.Minute, true},
		{[]string{expires, "Date: " + httpDate(time.Minute)}, 2 * time.Minute, true},
		{[]string{expires, "Date: " + httpDate(time.Hour)}, 0, true},
		{[]string{"Expires: Fri, 02 Jan 2026 12:01:00 GMT", date}, time.Minute, true},
		{[]string{"Expires: Friday, 02-Jan-26 12:01:00 GMT", date}, time.Minute, true}, // RFC 9110 5.6.7
		{[]string{"Expires: Fri Jan  2 12:01:00 2026", date}, time.Minute, true},
		{[]string{"Expires: Thu, 01 Jan 1970 00:00:00 GMT", date}, 0, true},
		{[]string{"Expires: Fri, 31 Dec 9999 23:59:59 GMT", date}, maxLifetime, true},
		{[]string{"Expires: 0", date}, 0, true},
		{[]string{"Expires: -1", date}, 0, true},
		{[]string{"Expires: ", date}, 0, true},
		{[]string{"Expires: Fri, 02 Jan 2026 12:01:00 CET", date}, 0, true},
		{[]string{"Expires: 2026-01-02T12:01:00Z", date}, 0, true},
		{[]string{expires, expires, date}, 0, true},
	} {
		h := header(c.fields...)
		got, explicit := freshnessLifetime(parseControl(h["Cache-Control"]), false, h, noon)
		if got != c.want || explicit != c.explicit {
			t.Errorf("%q: got %v, %v, want %v, %v", c.fields, got, explicit, c.want, c.explicit)
		}
	}
}

// RFC 9111 5.1: a value that is no number is ignored, and of a list the first counts.
func TestAgeValue(t *testing.T) {
	for _, c := range []struct {
		fields []string
		want   time.Duration
	}{
		{nil, 0},
		{[]string{"Age: 7"}, 7 * time.Second},
		{[]string{"Age: 0"}, 0},
		{[]string{"Age: 7, 9"}, 7 * time.Second},
		{[]string{"Age: 7,x"}, 7 * time.Second},
		{[]string{"Age: 7", "Age: 9"}, 7 * time.Second},
		{[]string{"Age:  7 "}, 7 * time.Second},
		{[]string{"Age: x, 7"}, 0},
		{[]string{"Age: -7"}, 0},
		{[]string{"Age: 7.5"}, 0},
		{[]string{"Age: 7s"}, 0},
		{[]string{`Age: "7"`}, 0},
		{[]string{"Age: "}, 0},
		{[]string{"Age: 99999999999999999999999"}, maxLifetime},
	} {
		want(t, "Age of "+header(c.fields...).Get("Age"), ageValue(header(c.fields...)), c.want)
	}
}

// RFC 9111 4.2.3: the greater of Age and of the time since Date.
func TestInitialAge(t *testing.T) {
	for _, c := range []struct {
		fields []string
		want   time.Duration
	}{
		{nil, 0},
		{[]string{"Date: " + httpDate(-10*time.Second)}, 10 * time.Second},
		{[]string{"Date: " + httpDate(-10*time.Second), "Age: 7"}, 10 * time.Second},
		{[]string{"Date: " + httpDate(-10*time.Second), "Age: 12"}, 12 * time.Second},
		{[]string{"Date: " + httpDate(time.Hour), "Age: 12"}, 12 * time.Second},
		{[]string{"Date: " + httpDate(time.Hour)}, 0},
		{[]string{"Date: today", "Age: 12"}, 12 * time.Second},
		{[]string{"Date: Mon, 01 Jan 0001 00:00:00 GMT"}, maxLifetime},
	} {
		want(t, "age of "+header(c.fields...).Get("Date"), initialAge(header(c.fields...), noon), c.want)
	}
	// A response of this second is not old because its Date has no fractions.
	now := noon.Add(999 * time.Millisecond)
	want(t, "age within the second", initialAge(header("Date: "+httpDate(0)), now), 0)
}
