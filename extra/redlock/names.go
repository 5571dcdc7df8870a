package redlock

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxPlainName is the length above which a name is replaced by its hash.
const maxPlainName = 1024

// keys are the names in Redis of one lock. They share a hash tag, because a server may be a cluster of its own.
type keys struct{ lock, memory string }

// keysOf gives every name keys of its own. Their first letters are those of no key of a Cache or a stockade.Locker.
func keysOf(prefix, name string) keys {
	kind, tag := "R", escaper.Replace(name)
	switch {
	case len(name) > maxPlainName:
		sum := sha256.Sum256([]byte(name))
		kind, tag = "RH", hex.EncodeToString(sum[:])
	case name == "":
		tag = "%" // which no other name becomes
	}
	return keys{
		lock:   prefix + ":" + kind + ":m:{" + tag + "}",
		memory: prefix + ":" + kind + ":n:{" + tag + "}",
	}
}

var escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
