package middleware

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// sfText is what is left to read of a structured field (RFC 9651 4.2). Its methods read from the front, and report whether
// that was there.
type sfText string

func (s *sfText) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(string(*s), prefix)
	*s = sfText(rest)
	return ok
}

func (s *sfText) spaces() { *s = sfText(strings.TrimLeft(string(*s), " \t")) }

// while takes the longest prefix of bytes that f accepts.
func (s *sfText) while(f func(c byte) bool) string {
	n := 0
	for n < len(*s) && f((*s)[n]) {
		n++
	}
	taken := string((*s)[:n])
	*s = (*s)[n:]
	return taken
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return isLower(c | 0x20) }

// key reads a key (RFC 9651 4.2.3.3).
func (s *sfText) key() (string, bool) {
	if *s == "" || !isLower((*s)[0]) && (*s)[0] != '*' {
		return "", false
	}
	return s.while(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 }), true
}

// value reads an item or an inner list (RFC 9651 4.2.1.1). It returns the digits of an integer, and a quote and the text
// for anything else.
func (s *sfText) value() (text string, ok bool) {
	if !s.skip("(") {
		return s.item()
	}
	for {
		*s = sfText(strings.TrimLeft(string(*s), " "))
		if s.skip(")") {
			return `"`, true
		}
		if _, ok := s.item(); !ok || !s.parameters() || *s == "" || (*s)[0] != ' ' && (*s)[0] != ')' {
			return "", false
		}
	}
}

// item reads a bare item (RFC 9651 4.2.3.1).
func (s *sfText) item() (text string, ok bool) {
	if *s == "" {
		return "", false
	}
	other := func(ok bool) (string, bool) { return `"`, ok }
	switch c := (*s)[0]; {
	case c == '-' || isDigit(c):
		return s.number()
	case c == '"':
		return other(s.quoted())
	case c == '*' || isAlpha(c):
		s.while(func(c byte) bool { return tokenLen(string(rune(c))) == 1 || c == ':' || c == '/' })
		return other(true)
	case s.skip(":"): // a byte sequence
		s.while(func(c byte) bool { return isAlpha(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0 })
		return other(s.skip(":"))
	case s.skip("?"): // a Boolean
		return other(s.skip("0") || s.skip("1"))
	case s.skip("@"): // a date
		text, ok := s.number()
		return other(ok && !strings.Contains(text, "."))
	case s.skip("%"): // a display string
		return other(s.display())
	}
	return "", false
}

// number reads an integer or a decimal (RFC 9651 4.2.4).
func (s *sfText) number() (text string, ok bool) {
	if s.skip("-") {
		text = "-"
	}
	whole := s.while(isDigit)
	text += whole
	if !s.skip(".") {
		return text, len(whole) >= 1 && len(whole) <= 15
	}
	part := s.while(isDigit)
	return text + "." + part, len(whole) >= 1 && len(whole) <= 12 && len(part) >= 1 && len(part) <= 3
}

// quoted reads a string (RFC 9651 4.2.5).
func (s *sfText) quoted() bool {
	for s.skip(`"`); *s != ""; {
		switch {
		case s.skip(`"`):
			return true
		case s.skip(`\`):
			if !s.skip(`\`) && !s.skip(`"`) {
				return false
			}
		case (*s)[0] < 0x20 || (*s)[0] > 0x7e:
			return false
		default:
			*s = (*s)[1:]
		}
	}
	return false
}

// display reads a display string after its percent sign (RFC 9651 4.2.10).
func (s *sfText) display() bool {
	isHex := func(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }
	if !s.skip(`"`) {
		return false
	}
	var text []byte
	for *s != "" {
		c := (*s)[0]
		*s = (*s)[1:]
		switch {
		case c < 0x20 || c > 0x7e:
			return false
		case c == '"':
			return utf8.Valid(text)
		case c == '%':
			if len(*s) < 2 || !isHex((*s)[0]) || !isHex((*s)[1]) {
				return false
			}
			b, _ := hex.DecodeString(string((*s)[:2]))
			text, *s = append(text, b...), (*s)[2:]
		default:
			text = append(text, c)
		}
	}
	return false
}

// parameters reads those of an item, which mean nothing here (RFC 9651 4.2.3.2).
func (s *sfText) parameters() bool {
	for s.skip(";") {
		*s = sfText(strings.TrimLeft(string(*s), " "))
		if _, ok := s.key(); !ok {
			return false
		}
		if s.skip("=") {
			if _, ok := s.item(); !ok {
				return false
			}
		}
	}
	return true
}
