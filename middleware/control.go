package middleware

import (
	"net/http"
	"strings"
	"time"
)

// RFC 9111 5.2: Cache-Control.

// directive is one member of a Cache-Control field.
type directive struct {
	name   string // in lower case
	value  string // unquoted
	valued bool
	broken bool // what follows the name cannot be read: it counts by its name, but has no value
}

// directives are those of all lines of a field, in their order.
type directives []directive

// parseControl reads the lines of a Cache-Control field. What cannot be read does not hide what stands beside it.
func parseControl(lines []string) directives {
	var ds directives
	for _, line := range lines {
		for line != "" {
			var d directive
			if d, line = parseDirective(line); d.name != "" {
				ds = append(ds, d)
			}
		}
	}
	return ds
}

// parseDirective reads one member from the front of a line.
func parseDirective(s string) (d directive, rest string) {
	s = strings.TrimLeft(s, " \t,")
	name := s[:tokenLen(s)]
	d.name, s = strings.ToLower(name), s[len(name):]
	if strings.HasPrefix(s, "=") {
		s, d.valued = s[1:], true
		if strings.HasPrefix(s, `"`) {
			if value, rest, ok := unquote(s); ok {
				d.value, s = value, rest
			} else {
				d.broken = true
			}
		} else {
			d.value = s[:tokenLen(s)]
			d.broken, s = d.value == "", s[len(d.value):]
		}
	}
	member, rest := cutMember(s)
	if strings.Trim(member, " \t") != "" {
		d.broken = true
	}
	if d.broken {
		d.value, d.valued = "", false
	}
	return d, rest
}

// cutMember splits s before its next comma outside quotes. A quote that never ends is none: what comes after the next comma
// may be no-store.
func cutMember(s string) (member, rest string) {
	quoted, opened := false, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted, opened = !quoted, i
		case c == ',' && !quoted:
			return s[:i], s[i+1:]
		}
	}
	if comma := strings.IndexByte(s[opened:], ','); quoted && comma >= 0 {
		return s[:opened+comma], s[opened+comma+1:]
	}
	return s, ""
}

// unquote reads a quoted-string (RFC 9110 5.6.4) from the front of s.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// String writes the field so that it reads the same.
func (ds directives) String() string {
	var b strings.Builder
	for i, d := range ds {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(d.name)
		switch {
		case d.broken:
			b.WriteString("=") // a value that is missing cannot be read either
		case d.valued && tokenLen(d.value) == len(d.value) && d.value != "":
			b.WriteString("=" + d.value)
		case d.valued:
			b.WriteString(`="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(d.value) + `"`)
		}
	}
	return b.String()
}

// has reports whether a directive is there, with or without a value, readable or not. A qualified private or no-cache
// counts as the unqualified one: this cache does not split a response (RFC 9111 5.2.2.4, 5.2.2.7).
func (ds directives) has(name string) bool {
	for _, d := range ds {
		if d.name == name {
			return true
		}
	}
	return false
}

// seconds returns the first value of a directive (RFC 9111 4.2.1). One that cannot be read is zero.
func (ds directives) seconds(name string) (d time.Duration, found bool) {
	for _, m := range ds {
		if m.name == name {
			d, _ = deltaSeconds(m.value)
			return d, true
		}
	}
	return 0, false
}

// deltaSeconds reads a number of seconds (RFC 9111 1.2.2).
func deltaSeconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), int64(maxLifetime/time.Second))
	}
	return time.Duration(n) * time.Second, true
}

// maxLifetime is what longer times count as: more than the 2^31 seconds of RFC 9111 1.2.2, and three of them fit a Duration.
const maxLifetime = 70 * 365 * 24 * time.Hour

// tokenLen is the length of the token (RFC 9110 5.6.2) at the front of s.
func tokenLen(s string) int {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return i
		}
	}
	return len(s)
}

func isToken(s string) bool { return s != "" && tokenLen(s) == len(s) }

// list returns the members of a field that is a list (RFC 9110 5.6.1), of all its lines.
func list(h http.Header, name string) []string {
	var members []string
	for _, line := range h[name] {
		for line != "" {
			var member string
			if member, line = cutMember(line); strings.Trim(member, " \t") != "" {
				members = append(members, strings.Trim(member, " \t"))
			}
		}
	}
	return members
}
