package redlock

import (
	"strings"
	"testing"
)

// TestNamesDiffer: no two names share a key, and both keys of a name share a hash tag.
func TestNamesDiffer(t *testing.T) {
	long := strings.Repeat("x", maxPlainName+1)
	names := []string{"", "%", "%25", "x", "{x}", "%7Bx%7D", "{}x", "}{", "x}", long, long + "y", keysOf("ns", long).lock}
	_, hash, _ := strings.Cut(strings.TrimSuffix(keysOf("ns", long).lock, "}"), "{")
	names = append(names, hash) // a name like another's hash
	owners := map[string]string{}
	for _, name := range names {
		k := keysOf("ns", name)
		for _, key := range []string{k.lock, k.memory} {
			if other, taken := owners[key]; taken {
				t.Errorf("%.20q and %.20q share the key %q", name, other, key)
			}
			owners[key] = name
		}
		_, tag, _ := strings.Cut(k.lock, "{")
		if !strings.HasSuffix(k.memory, "{"+tag) || len(tag) < 2 || strings.Count(k.lock, "{") != 1 || strings.Index(tag, "}") != len(tag)-1 {
			t.Errorf("keys %q and %q of %.20q do not share a hash tag", k.lock, k.memory, name)
		}
	}
}
