package stockade

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/internal/redistest"
)

func TestKeyName(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for _, test := range []struct{ key, want string }{
		{"x", "ns:K:v:{x}"},
		{"{x}", "ns:T:v:{x}"},
		{"a{b}c{d}", "ns:T:v:a{b}c{d}"},
		{"a{{b}", "ns:T:v:a{{b}"},
		{"", "ns:K:v:{%}"},
		{"%", "ns:K:v:{%25}"},
		{"{}", "ns:K:v:{%7B%7D}"},
		{"{}{x}", "ns:K:v:{%7B%7D%7Bx%7D}"},
		{"}{", "ns:K:v:{%7D%7B}"},
		{"\xff", "ns:K:v:{\xff}"},
		{long[1:], "ns:K:v:{" + long[1:] + "}"},
		{long, "ns:H:v:{c6d8e9905300876046729949cc95c2385221270d389176f7234fe7ac00c4e430}"},
	} {
		if got := keyName("ns", 'v', test.key); got != test.want {
			t.Errorf("keyName(%.20q) is %.80q, want %.80q", test.key, got, test.want)
		}
	}
}

func TestKeyNameAllocatesOnce(t *testing.T) {
	for _, key := range []string{"user:42", "{user}:42", "100%"} {
		if n := testing.AllocsPerRun(100, func() { _ = keyName("prefix", 'v', key) }); n > 2 || n > 1 && key != "100%" {
			t.Errorf("keyName(%q) allocates %v times", key, n)
		}
	}
}

// FuzzKeyName: the parts of a key share a slot, which its hash tag chooses when it has one, and keys do not share names.
func FuzzKeyName(f *testing.F) {
	for _, key := range []string{"", "x", "{x}", "{}", "}{", "a{b", "a{}b{c}", "%7B", "{%}", "\xff{\xfe}", strings.Repeat("{x}", 400)} {
		f.Add(key, "x")
	}
	f.Fuzz(func(t *testing.T, key, other string) {
		value := keyName("ns", 'v', key)
		for _, letter := range []byte("lemn") {
			if name := keyName("ns", letter, key); slot(name) != slot(value) || name == value {
				t.Errorf("names %q and %q", value, name)
			}
		}
		if tag, ok := hashTag(value); !ok || tag == "" {
			t.Errorf("%q has no hash tag", value)
		}
		if tag, ok := hashTag(key); ok && len(key) <= maxPlainKey && slot(value) != slot(tag) {
			t.Errorf("%q is not in the slot of %q", value, tag)
		}
		if back, ok := keyOf("ns", value); ok != (len(key) <= maxPlainKey) || ok && back != key {
			t.Errorf("%q is named %q, which is taken for the name of %q (%v)", key, value, back, ok)
		}
		if key != other && keyName("ns", 'v', other) == value {
			t.Errorf("%q and %q are both named %q", key, other, value)
		}
	})
}

// TestSlot checks the tests' own arithmetic, and all forms of names, against a server.
func TestSlot(t *testing.T) {
	rdb := redistest.NewReal(t, "--cluster-enabled", "yes").Client(t)
	for _, key := range []string{"123456789", "x", "{x}y", "{}x", "a{b", "}{", "a{{b}c}", "%", "\xff\x00", strings.Repeat("x", 2000)} {
		names := []string{key}
		for _, letter := range []byte("vlemn") {
			names = append(names, keyName("ns", letter, key))
		}
		for _, name := range names {
			if got, err := rdb.ClusterKeySlot(t.Context(), name).Result(); err != nil || got != slot(name) {
				t.Errorf("slot of %.40q is %d (%v), want %d", name, got, err, slot(name))
			}
		}
	}
	script := redis.NewScript("return redis.call('EXISTS', KEYS[1], KEYS[2])")
	if err := script.Run(t.Context(), rdb, []string{keyName("ns", 'm', "a}{"), keyName("ns", 'n', "a}{")}).Err(); err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") {
		t.Error(err)
	}
}

// hashTag finds what a cluster hashes instead of the whole name.
func hashTag(name string) (string, bool) {
	start := strings.IndexByte(name, '{')
	if start < 0 {
		return "", false
	}
	n := strings.IndexByte(name[start+1:], '}')
	if n <= 0 {
		return "", false
	}
	return name[start+1 : start+1+n], true
}

// slot is the cluster slot of a name: CRC16 (XMODEM) of its hash tag, or of all of it.
func slot(name string) int64 {
	if tag, ok := hashTag(name); ok {
		name = tag
	}
	var crc uint16
	for _, c := range []byte(name) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int64(crc % 16384)
}
