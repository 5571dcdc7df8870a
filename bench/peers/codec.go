package peers

import "github.com/vmihailenco/msgpack/v5"

// encode returns what is stored of a value.
func encode[T any](value T) ([]byte, error) {
	if data, ok := any(value).([]byte); ok {
		return data, nil
	}
	return msgpack.Marshal(value)
}

func decode[T any](data []byte) (value T, err error) {
	if whole, ok := any(&value).(*[]byte); ok {
		*whole = data
		return value, nil
	}
	err = msgpack.Unmarshal(data, &value)
	return value, err
}
