package stockade

import (
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
	"github.com/stockade-cache/stockade/internal/script"
	"github.com/vmihailenco/msgpack/v5"
)

// row is a value with what a struct may have.
type row struct {
	Name  string
	Count int64
	Parts []string
	Next  *row
}

var token = strings.Repeat("t", script.TokenLen)

// Whatever is stored, decoding does not panic, and what has a head that is ours keeps it.
func FuzzDecode(f *testing.F) {
	h := head{token: token, loadedAt: 1, freshUntil: 2, staleUntil: 3, cost: 4}
	whole, _ := newFormat[row](nil).encode(h, "tag", &row{Name: "n", Parts: []string{"a", ""}, Next: &row{Count: -1}})
	absent := encodeAbsent(h)
	for _, s := range [][]byte{
		nil, whole, absent, whole[:script.HeadLen], whole[:script.HeadLen+1], absent[:len(absent)-1], append([]byte{0x99, 2}, whole[2:]...),
		append(h.append(nil), 0xdb, 0xff, 0xff, 0xff, 0xff), append(h.append(nil), 0xa0, 0xc6, 0xff, 0xff, 0xff, 0xff),
		append(h.append(nil), 0xa0, 0xdd, 0xff, 0xff, 0xff, 0xff), // an array of 4 G elements
	} {
		f.Add(string(s))
	}
	rows, texts, raws, coded := newFormat[row](nil), newFormat[string](nil), newFormat[[]byte](nil), newFormat[row](jsonCodec{})
	f.Fuzz(func(t *testing.T, s string) {
		parsed, _, err := parseHead(s)
		if err == nil && string(parsed.append(nil)) != headOf(s) {
			t.Errorf("the head of %q is written as %q", s, parsed.append(nil))
		}
		check := func(decoded head, err error) {
			if err == nil && decoded != parsed {
				t.Errorf("%q: got the head %+v, want %+v", s, decoded, parsed)
			}
		}
		r, err := rows.decode(s)
		check(r.head, err)
		x, err := texts.decode(s)
		check(x.head, err)
		w, err := raws.decode(s)
		check(w.head, err)
		c, err := coded.decode(s)
		check(c.head, err)
	})
}

// A value that claims more than it has costs next to nothing.
func TestDecodingOfCutValuesIsBounded(t *testing.T) {
	const most = 64 << 10
	h := string(head{token: token}.append(nil)) + "\xa0"
	cut := map[string]func() error{
		"a map whose key has 800 MB":     decodes[row](h + "\x81\xdb\x30\x00\x00\x00x"),
		"a string of 800 MB":             decodes[string](h + "\xdb\x30\x00\x00\x00x"),
		"800 MB in a field":              decodes[struct{ B []byte }](h + "\x81\xa1B\xc6\x30\x00\x00\x00x"),
		"a list of 16 M numbers":         decodes[[]int64](h + "\xdd\x01\x00\x00\x00\x01"),
		"a list of 16 M rows":            decodes[[]row](h + "\xdd\x01\x00\x00\x00\x80"),
		"a map of 16 M":                  decodes[map[string]int](h + "\xdf\x01\x00\x00\x00\xa1a\x01"),
		"lists of 60 K, within another":  decodes[any](h + "\xdc\xee\x00\xdc\xee\x00\xdc\xee\x00"),
		"an extension of 800 MB":         decodes[time.Time](h + "\xc9\x30\x00\x00\x00\xff"),
		"an extension without its bytes": decodes[time.Time](h + "\xd6\xff\x00"),
	}
	for name, decode := range cut {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := decode()
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: decoded", name)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s: %d bytes", name, took)
		}
	}
}

func decodes[T any](s string) func() error {
	f := newFormat[T](nil)
	return func() error { _, err := f.decode(s); return err }
}

// What msgpack writes is whole, and no part of it is.
func TestIsWhole(t *testing.T) {
	bin := func(n int) []byte { return make([]byte, n) }
	for _, v := range []any{
		nil, true, 1, -1, -33, 200, -200, 70_000, -70_000, 1 << 40, -1 << 40, uint64(math.MaxUint64), float32(1), 1.5,
		"", "short", strings.Repeat("s", 40), strings.Repeat("s", 300), strings.Repeat("s", 70_000), bin(0), bin(300), bin(70_000),
		[]int{}, make([]int, 20), make([]int, 70_000), map[string]int{"a": 1}, bigMap(20), bigMap(70_000),
		time.Unix(1, 0), time.Unix(1, 1), time.Unix(1<<40, 1), []any{[]any{1, map[string]any{"k": []any{nil}}}, "x"},
	} {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !isWhole(string(b)) || !isWhole(string(b)+"more") {
			t.Errorf("%T of %d bytes is not whole", v, len(b))
		}
		for _, n := range []int{0, 1, 2, 3, 4, 5, len(b) / 2, len(b) - 1} {
			if n < len(b) && isWhole(string(b[:n])) {
				t.Errorf("%d bytes of %T of %d are whole", n, v, len(b))
			}
		}
	}
}

func bigMap(n int) map[int]bool {
	m := map[int]bool{}
	for i := range n {
		m[i] = true
	}
	return m
}

// What is encoded decodes to itself.
func FuzzEncode(f *testing.F) {
	f.Add("", "", int64(0), int64(0), int64(0), int64(0))
	f.Add("W/\"\x00\xff\"", "a\x00\xf0\x9f", int64(1), int64(math.MaxInt64), int64(1<<40), int64(1))
	f.Add(strings.Repeat("e", 31), strings.Repeat("v", 32), int64(5), int64(4), int64(3), int64(2))
	f.Add(strings.Repeat("e", 256), strings.Repeat("v", 1<<16), int64(5), int64(4), int64(3), int64(2))
	f.Fuzz(func(t *testing.T, etag, value string, loadedAt, freshUntil, staleUntil, cost int64) {
		const positive = math.MaxInt64 // times are
		h := head{token: token, loadedAt: loadedAt & positive, freshUntil: freshUntil & positive, staleUntil: staleUntil & positive, cost: cost & positive}
		encodesAndDecodes(t, nil, h, etag, value)
		encodesAndDecodes(t, nil, h, etag, []byte(value))
		encodesAndDecodes(t, nil, h, etag, row{Name: value, Count: cost, Parts: []string{etag, value}, Next: &row{Name: etag}})
		encodesAndDecodes(t, nil, h, etag, map[string]int64{value: loadedAt})
		encodesAndDecodes(t, jsonCodec{}, h, etag, cost)
		e, err := newFormat[string](nil).decode(string(encodeAbsent(h)))
		h.kind = kindAbsent
		if err != nil || e.head != h {
			t.Errorf("absent: got %+v, %v", e, err)
		}
	})
}

func encodesAndDecodes[T any](t *testing.T, codec Codec, h head, etag string, value T) {
	t.Helper()
	f := newFormat[T](codec)
	b, err := f.encode(h, etag, &value)
	if err != nil {
		t.Fatal(err)
	}
	e, err := f.decode(string(b))
	if err != nil || e.head != h || e.etag != etag || !reflect.DeepEqual(unboxed[T](e.value), value) {
		t.Errorf("got %+v, %v, want %+v, %q, %+v", e, err, h, etag, value)
	}
}

// Expire patches the head of a value in place: the rest stays what it was, and the value is never served for longer.
func FuzzExpire(f *testing.F) {
	now := time.Now().UnixMilli()
	f.Add("tag", "value", now+1000, int64(5000))
	f.Add("", "\xff\x00", now-1000, int64(0))
	f.Add("t", "", int64(0), int64(1))
	f.Add("t", "v", now, maxLifetime.Milliseconds())
	rdb := redistest.Fake(f).Client(f)
	format := newFormat[string](nil)
	k := script.Keys{Value: "v", Lease: "l", Failure: "e"}
	f.Fuzz(func(t *testing.T, etag, value string, freshUntil, staleFor int64) {
		const far = 1 << 45 // ms: a thousand years
		freshUntil, staleFor = freshUntil&(far-1), staleFor&(far-1)
		h := head{token: token, loadedAt: 1, freshUntil: freshUntil, staleUntil: freshUntil + staleFor, cost: 7}
		b, err := format.encode(h, etag, &value)
		if err != nil {
			t.Fatal(err)
		}
		if err := rdb.Set(t.Context(), k.Value, b, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time nothing changes
			r, errs := script.DoMany(t.Context(), rdb, []script.Call{script.Expire(k, "wake", "originxx")})
			if errs[0] != nil {
				t.Fatal(errs[0])
			}
			s, err := rdb.Get(t.Context(), k.Value).Result()
			if staleFor == 0 {
				if err == nil {
					t.Errorf("a value without a stale time is still there: %q", s)
				}
				return
			}
			e, err := format.decode(s)
			if err != nil || e.etag != etag || unboxed[string](e.value) != value {
				t.Fatalf("got %+v, %v", e, err)
			}
			if freshUntil > 0 {
				h.staleUntil = min(h.staleUntil, r[0].Time/1000+staleFor)
			}
			if h.freshUntil = 0; e.head != h {
				t.Errorf("got %+v, want %+v", e.head, h)
			}
			freshUntil = 0
		}
	})
}

// New accepts no lifetime below 1 ms, none that overflows, and no number that is none.
func FuzzOptions(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), 0.0, 0.0)
	f.Add(int64(1), int64(-1), int64(-1), int64(-1), int64(-1), int64(1), int64(4), int64(1), -1.0, -1.0)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), math.NaN(), math.Inf(1))
	f.Add(int64(time.Millisecond), int64(time.Millisecond)-1, int64(math.MinInt64), int64(1), int64(maxLifetime), int64(maxLifetime), int64(4*time.Millisecond), int64(time.Millisecond), math.Nextafter(1, 0), math.MaxFloat64)
	f.Add(int64(maxLifetime), int64(maxLifetime), int64(maxLifetime), int64(maxLifetime), int64(maxLifetime), int64(maxLifetime), int64(maxLifetime), int64(math.MaxInt64/4+1), 0.5, 1.0)
	f.Fuzz(func(t *testing.T, ttl, staleFor, keepFor, absentTTL, backoff, loadTimeout, leaseTTL, redisTimeout int64, jitter, beta float64) {
		o, err := Options{
			Prefix: "test", TTL: time.Duration(ttl), StaleFor: time.Duration(staleFor), KeepFor: time.Duration(keepFor), AbsentTTL: time.Duration(absentTTL),
			FailureBackoff: time.Duration(backoff), LoadTimeout: time.Duration(loadTimeout), LeaseTTL: time.Duration(leaseTTL),
			RedisTimeout: time.Duration(redisTimeout), Jitter: jitter, EarlyRefresh: beta,
		}.complete()
		if err != nil {
			if !strings.Contains(err.Error(), " is ") {
				t.Errorf("%v names no value", err)
			}
			return
		}
		for name, d := range map[string]time.Duration{"TTL": o.TTL, "LoadTimeout": o.LoadTimeout, "LeaseTTL": o.LeaseTTL, "RedisTimeout": o.RedisTimeout} {
			if d < time.Millisecond || d > maxLifetime {
				t.Errorf("%s is %d", name, d)
			}
		}
		for name, d := range map[string]time.Duration{"StaleFor": o.StaleFor, "KeepFor": o.KeepFor, "AbsentTTL": o.AbsentTTL, "FailureBackoff": o.FailureBackoff} {
			if d == 0 || d > 0 && d < time.Millisecond || d > maxLifetime {
				t.Errorf("%s is %d", name, d)
			}
		}
		if o.LeaseTTL/4 < o.RedisTimeout {
			t.Errorf("LeaseTTL %v, RedisTimeout %v", o.LeaseTTL, o.RedisTimeout)
		}
		if math.IsNaN(o.Jitter) || o.Jitter >= 1 || math.IsNaN(o.EarlyRefresh) || math.IsInf(o.EarlyRefresh, 1) {
			t.Errorf("Jitter %v, EarlyRefresh %v", o.Jitter, o.EarlyRefresh)
		}
		for _, u := range []float64{0, 0.5, math.Nextafter(1, 0)} {
			life := lifetimes{fresh: jittered(o.TTL, max(o.Jitter, 0), u), stale: max(o.StaleFor, 0), keep: max(o.KeepFor, 0)}
			if total := life.total(); total < life.fresh || total < time.Millisecond || life.fresh > o.TTL {
				t.Errorf("lifetimes %+v", life)
			}
		}
	})
}
