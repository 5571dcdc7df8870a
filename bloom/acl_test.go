package bloom

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// The rights that the README names are enough.
func TestTheRightsOfTheReadmeAreEnough(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "\nACL SETUSER app")
	rights, _, _ := strings.Cut(rest, "\n")
	_, rest, _ = strings.Cut(rest, "With a bloom filter also `")
	more, _, ok := strings.Cut(rest, "`")
	if !ok {
		t.Fatal("no rights in README.md")
	}
	words := []any{"ACL", "SETUSER", "app"}
	for _, w := range strings.Fields(strings.ReplaceAll(rights, "product:", "test:") + " " + more) {
		words = append(words, w)
	}
	s := redistest.NewReal(t)
	if err := s.Client(t).Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	f := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }))
	for range 2 {
		build(t, f, "a")
		if err := f.Add(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		wantMay(t, f, true, "a", "b")
		wantMay(t, f, false, "x")
		if _, err := f.Stats(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
