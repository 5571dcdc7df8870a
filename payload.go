package stockade

// msgpack's codes from 0xc0 to 0xdf: how many bytes its length has, and how many more follow whatever that is. See
// https://github.com/msgpack/msgpack/blob/master/spec.md.
var shapes = [32]struct{ length, fixed uint8 }{
	4: {1, 0}, 5: {2, 0}, 6: {4, 0}, // bin
	7: {1, 1}, 8: {2, 1}, 9: {4, 1}, // ext
	10: {0, 4}, 11: {0, 8}, // float
	12: {0, 1}, 13: {0, 2}, 14: {0, 4}, 15: {0, 8}, // uint
	16: {0, 1}, 17: {0, 2}, 18: {0, 4}, 19: {0, 8}, // int
	20: {0, 2}, 21: {0, 3}, 22: {0, 5}, 23: {0, 9}, 24: {0, 17}, // fixext
	25: {1, 0}, 26: {2, 0}, 27: {4, 0}, // str
	28: {2, 0}, 29: {4, 0}, // array
	30: {2, 0}, 31: {4, 0}, // map
}

// isWhole reports whether s begins with one msgpack value that has all that its lengths claim: a decoder allocates by
// them before it misses the data.
func isWhole(s string) bool {
	for values := 1; values > 0; values-- {
		if values > len(s) {
			return false
		}
		c := s[0]
		s = s[1:]
		size := 0
		switch {
		case c < 0x80 || c >= 0xe0: // fixint
		case c < 0x90: // fixmap
			values += 2 * int(c&0x0f)
		case c < 0xa0: // fixarray
			values += int(c & 0x0f)
		case c < 0xc0: // fixstr
			size = int(c & 0x1f)
		case c == 0xc1:
			return false
		default:
			shape := shapes[c-0xc0]
			if len(s) < int(shape.length) {
				return false
			}
			n := 0
			for _, b := range []byte(s[:shape.length]) {
				n = n<<8 | int(b)
			}
			s = s[shape.length:]
			switch size = int(shape.fixed); {
			case c >= 0xde:
				values += 2 * n
			case c >= 0xdc:
				values += n
			default:
				size += n
			}
		}
		if len(s) < size {
			return false
		}
		s = s[size:]
	}
	return true
}
