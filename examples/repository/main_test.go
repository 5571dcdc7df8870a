package main

import (
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
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []struct{ row, queries string }{
		{"stock 7, error <nil>", "so far: 1"},
		{"stock 7, error <nil>", "so far: 1"},
		{"stock 6, error <nil>", "so far: 2"},
		{"stock 0, error ", "so far: 3"},
		{"stock 0, error ", "so far: 3"},
	} {
		if i >= len(lines) || !strings.Contains(lines[i], want.row) || !strings.Contains(lines[i], want.queries) {
			t.Errorf("line %d does not say %v:\n%s", i+1, want, out.String())
		}
	}
}
