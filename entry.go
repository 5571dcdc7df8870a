package stockade

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/stockade-cache/stockade/internal/script"
)

// The stored form of an entry is one msgpack array:
//
//	version, kind, writer's token, loaded-at, fresh-until, stale-until (server ms), load cost (µs), etag, payload
//
// What stands before the etag is written with fixed widths, so that this head has one length: a step compares it or
// patches it by position and never parses. Any msgpack tool reads the whole.
const (
	entryVersion = 1
	entryFields  = 9
)

type entryKind byte

const (
	kindValue  entryKind = 0
	kindAbsent entryKind = 1
)

// head is the fixed-length front of a stored entry.
type head struct {
	kind       entryKind
	token      string // of the writer, 16 bytes
	loadedAt   int64  // server ms
	freshUntil int64  // server ms
	staleUntil int64  // server ms
	cost       int64  // of the load, µs
}

// begin is when the entry was stored, server µs: its loading had ended.
func (h head) begin() int64 { return h.loadedAt*1000 + h.cost }

// age is how long ago the load began, at a server's time in ms.
func (h head) age(now int64) time.Duration {
	return time.Duration(max(now-h.loadedAt, 0)) * time.Millisecond
}

// append writes the head in its fixed widths: uint64 and a bin of 16, whatever the numbers are.
func (h head) append(b []byte) []byte {
	b = append(b, 0x90|entryFields, entryVersion, byte(h.kind), 0xc4, script.TokenLen)
	b = append(b, h.token...)
	for _, n := range [...]int64{h.loadedAt, h.freshUntil, h.staleUntil, h.cost} {
		b = append(b, 0xcf)
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

var (
	errUndecodable = errors.New("not an entry of this cache")
	errNewer       = errors.New("written by a newer version")
)

// parseHead splits a stored entry. It returns errNewer for a version that this one does not know, and errUndecodable
// for anything else that append did not write.
func parseHead(s string) (h head, rest string, err error) {
	if len(s) >= 2 && s[0]&0xf0 == 0x90 && s[1] > entryVersion && s[1] < 0x80 {
		return head{}, "", errNewer
	}
	if len(s) < script.HeadLen || s[0] != 0x90|entryFields || s[1] != entryVersion || s[2] > byte(kindAbsent) || s[3] != 0xc4 || s[4] != script.TokenLen {
		return head{}, "", errUndecodable
	}
	h.kind, h.token = entryKind(s[2]), s[5:5+script.TokenLen]
	for i, n := range [...]*int64{&h.loadedAt, &h.freshUntil, &h.staleUntil, &h.cost} {
		at := 5 + script.TokenLen + 9*i
		u := binary.BigEndian.Uint64(bytesOf(s[at+1 : at+9]))
		if s[at] != 0xcf || u>>63 != 0 {
			return head{}, "", errUndecodable
		}
		*n = int64(u)
	}
	return h, s[script.HeadLen:], nil
}

// headOf is what a step compares: the front of a stored value, whatever it is.
func headOf(s string) string { return s[:min(len(s), script.HeadLen)] }

// format writes and reads entries of values of one type.
type format struct {
	of    typed
	codec Codec
	raw   bool // values are []byte, stored as they are
}

func newFormat[T any](codec Codec) format {
	of := newTypeOf[T]()
	return format{of: of, codec: codec, raw: codec == nil && of.isBytes()}
}

// recovered turns a panic of a codec, or of a method of T that a codec calls, into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

// encode writes the entry of the value that ptr points to.
func (f format) encode(h head, etag string, ptr any) (entry []byte, err error) {
	defer recovered(&err)
	value := f.of.value(ptr)
	var payload []byte
	if f.codec != nil {
		if payload, err = f.codec.Marshal(value); err != nil {
			return nil, fmt.Errorf("stockade: encode %T: %w", value, err)
		}
	}
	size := 0
	if f.raw {
		size = len(value.([]byte))
	}
	buf := bytes.NewBuffer(make([]byte, 0, script.HeadLen+len(etag)+len(payload)+size+64))
	buf.Write(h.append(nil))
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(buf)
	if err := enc.EncodeString(etag); err != nil {
		return nil, err
	}
	switch {
	case f.raw:
		err = enc.EncodeBytes(value.([]byte))
	case f.codec != nil:
		err = enc.EncodeBytes(payload)
	default:
		err = enc.Encode(value)
	}
	if err != nil {
		return nil, fmt.Errorf("stockade: encode %T: %w", value, err)
	}
	return buf.Bytes(), nil
}

// encodeAbsent writes the entry of a key that the source does not have.
func encodeAbsent(h head) []byte {
	h.kind = kindAbsent
	return append(h.append(nil), 0xa0, 0xc0) // no etag, nil
}

// stored is a decoded entry.
type stored struct {
	head
	etag  string
	value any // a *T; nil when the key is absent
}

// decode reads a stored entry: errNewer, or an error for what cannot be read as a T.
func (f format) decode(s string) (e stored, err error) {
	defer recovered(&err)
	h, rest, err := parseHead(s)
	if err != nil {
		return stored{}, err
	}
	e.head = h
	etag, payload, err := splitString(rest)
	if err != nil {
		return stored{}, err
	}
	if h.kind == kindAbsent {
		return e, nil
	}
	e.etag = etag
	if f.raw {
		b, err := splitBytes(payload)
		e.value = &b
		return e, err
	}
	e.value, err = f.decodeValue(payload)
	if err != nil {
		return stored{}, fmt.Errorf("%w: %w", errUndecodable, err)
	}
	return e, nil
}

func (f format) decodeValue(payload string) (ptr any, err error) {
	ptr = f.of.new()
	if f.codec == nil {
		if !isWhole(payload) {
			return nil, io.ErrUnexpectedEOF
		}
		dec := msgpack.GetDecoder()
		dec.UsePreallocateValues(true)
		dec.Reset(bytes.NewReader(bytesOf(payload)))
		err = dec.Decode(ptr)
		msgpack.PutDecoder(dec)
		return ptr, err
	}
	b, err := splitBytes(payload)
	if err == nil {
		err = f.codec.Unmarshal(b, ptr)
	}
	return ptr, err
}

// splitString reads one msgpack string from the front of s.
func splitString(s string) (first, rest string, err error) {
	if s == "" {
		return "", "", errUndecodable
	}
	size, at := 0, 1
	switch c := s[0]; {
	case c&0xe0 == 0xa0:
		size = int(c & 0x1f)
	case c == 0xd9 && len(s) >= 2:
		size, at = int(s[1]), 2
	case c == 0xda && len(s) >= 3:
		size, at = int(s[1])<<8|int(s[2]), 3
	case c == 0xdb && len(s) >= 5:
		size, at = int(binary.BigEndian.Uint32(bytesOf(s[1:5]))), 5
	default:
		return "", "", errUndecodable
	}
	if len(s)-at < size {
		return "", "", errUndecodable
	}
	return s[at : at+size], s[at+size:], nil
}

// splitBytes reads s as one msgpack bin, or nil. The result shares the memory of s, which came from the network and
// which nobody else reads as a string.
func splitBytes(s string) ([]byte, error) {
	if s == "" {
		return nil, errUndecodable
	}
	at := 0
	size := uint32(0)
	switch c := s[0]; {
	case c == 0xc0 && len(s) == 1:
		return nil, nil
	case c == 0xc4 && len(s) >= 2:
		size, at = uint32(s[1]), 2
	case c == 0xc5 && len(s) >= 3:
		size, at = uint32(s[1])<<8|uint32(s[2]), 3
	case c == 0xc6 && len(s) >= 5:
		size, at = binary.BigEndian.Uint32(bytesOf(s[1:5])), 5
	default:
		return nil, errUndecodable
	}
	if uint64(len(s)-at) != uint64(size) {
		return nil, errUndecodable
	}
	if size == 0 {
		return []byte{}, nil
	}
	b := bytesOf(s[at:])
	return b[:len(b):len(b)], nil
}

// bytesOf views a string as bytes, to be read only by what does not write to it.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// state says what may be done with a stored entry.
type state uint8

const (
	missing     state = iota // nothing there, or only kept for the loader
	fresh                    // within its TTL
	stale                    // past it, within StaleFor
	undecodable              // to be loaded and overwritten
	newer                    // of a newer version: to be loaded, not overwritten
)

// at judges an entry by the server's time in ms. An absent entry is never stale: it is asked again.
func (h head) at(now int64) state {
	switch {
	case now < h.freshUntil:
		return fresh
	case now < h.staleUntil && h.kind == kindValue:
		return stale
	}
	return missing
}

// lifetimes are how long one entry lives in its states, drawn from a Policy and from what the loader chose.
type lifetimes struct{ fresh, stale, keep time.Duration }

// total is how long Redis keeps the entry. Three of the longest lifetimes are more than a Duration holds.
func (l lifetimes) total() time.Duration {
	return l.fresh + l.stale + min(l.keep, math.MaxInt64-l.fresh-l.stale)
}
