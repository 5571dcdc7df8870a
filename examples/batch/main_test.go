package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func TestRun(t *testing.T) {
	server := miniredis.RunT(t)
	var out strings.Builder
	if err := run(t.Context(), t.TempDir(), redis.NewClient(&redis.Options{Addr: server.Addr()}), &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{ // products, queries, round trips
		`cold +one by one +100 +100 +\d{3} `,
		`warm +one by one +100 +0 +100 `,
		`cold +GetMany +100 +1 +3 `,
		`warm +GetMany +100 +0 +1 `,
		`half warm +GetMany +100 +1 +3 `,
		`not there +GetMany +50 +1 +3 `,
	} {
		if !regexp.MustCompile(row).MatchString(out.String()) {
			t.Errorf("no row like %q:\n%s", row, &out)
		}
	}
}
