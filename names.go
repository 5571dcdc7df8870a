package stockade

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxPlainKey is the length above which a key is named by its hash.
const maxPlainKey = 1024

// keyName names what belongs to a key (v value, l lease, e failure; m lock, n fences), so that all names of one key
// share a slot of a cluster and no two keys share a name. A key with a hash tag of its own keeps it.
func keyName(prefix string, letter byte, key string) string {
	l := string(letter)
	switch {
	case len(key) > maxPlainKey:
		sum := sha256.Sum256([]byte(key))
		return prefix + ":H:" + l + ":{" + hex.EncodeToString(sum[:]) + "}"
	case hasTag(key):
		return prefix + ":T:" + l + ":" + key
	case key == "":
		return prefix + ":K:" + l + ":{%}"
	case strings.ContainsAny(key, "%{}"):
		key = escaper.Replace(key)
	}
	return prefix + ":K:" + l + ":{" + key + "}"
}

// keyOf is the key whose value has a name; ok is false for the name of a long key, and of anything else.
func keyOf(prefix, name string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", false
	}
	if key, ok := strings.CutPrefix(rest, ":T:v:"); ok {
		return key, true
	}
	rest, ok = strings.CutPrefix(rest, ":K:v:{")
	if !ok {
		return "", false
	}
	key, ok = strings.CutSuffix(rest, "}")
	switch {
	case key == "%":
		return "", ok
	case strings.Contains(key, "%"):
		key = unescaper.Replace(key)
	}
	return key, ok
}

var unescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

var escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// hasTag reports whether Redis would take a part of key for its hash tag: what stands between the first { and the
// first } after it, when that is not empty. https://redis.io/docs/reference/cluster-spec, "Hash tags".
func hasTag(key string) bool {
	_, rest, ok := strings.Cut(key, "{")
	return ok && strings.Index(rest, "}") > 0
}
