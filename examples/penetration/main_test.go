package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func TestRun(t *testing.T) {
	server := miniredis.RunT(t)
	const requests = 1000 // of each attack
	var out strings.Builder
	if err := run(t.Context(), t.TempDir(), redis.NewClient(&redis.Options{Addr: server.Addr()}), requests, &out); err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]struct{ same, fresh int }{
		"no cache":       {requests, requests},
		"absent entries": {repeated, requests},
		"bloom filter":   {repeated / 10, requests / 20}, // 1 % are false positives
	} {
		_, row, found := strings.Cut(out.String(), name)
		fields := strings.Fields(row)
		if !found || len(fields) < 3 {
			t.Fatalf("no row of %s:\n%s", name, &out)
		}
		same, err1 := strconv.Atoi(fields[0])
		fresh, err2 := strconv.Atoi(fields[1])
		if err1 != nil || err2 != nil || same > most.same || fresh > most.fresh {
			t.Errorf("%s: want at most %+v queries:\n%s", name, most, &out)
		}
	}
}
