package peers

import (
	"bytes"
	"testing"
)

func TestCodec(t *testing.T) {
	raw := []byte{0, 255, 1}
	if data, err := encode(raw); err != nil || !bytes.Equal(data, raw) {
		t.Errorf("a []byte is stored as %v, %v", data, err)
	}
	if got, err := decode[[]byte](raw); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("a []byte is read as %v, %v", got, err)
	}
	data, err := encode(map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode[map[string]int](data); err != nil || got["a"] != 1 {
		t.Errorf("a map is read as %v, %v", got, err)
	}
	if _, err := decode[product](raw); err == nil {
		t.Error("decoded what is no product")
	}
}
