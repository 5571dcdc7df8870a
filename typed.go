package stockade

import (
	"context"
	"reflect"
)

// Only what stands here, and the thin methods of [Cache], is compiled for each type of values. Everything else is
// compiled once: it has a value as a pointer to it, and never looks inside.

// boxed is an entry as the core has it: its Value is a *T, or nil when there is none.
type boxed = Entry[any]

// typed is what the core asks of the type of values. A pointer to a value is a *T in an any.
type typed interface {
	new() any          // returns a pointer to a zero value
	value(ptr any) any // returns the value itself, as a codec wants it
	own(ptr any) any   // returns what one of several callers gets: a clone when T has Clone, else ptr
	isBytes() bool     // reports whether T is []byte
	load(ctx context.Context, from source, key string, old *boxed) (boxed, error)
	loadMany(ctx context.Context, from source, keys []string) (map[string]any, error) // of a BatchLoader
}

// source is what a caller gave to load from.
type source struct {
	loader  any  // a Loader[T], EntryLoader[T] or BatchLoader[T]; nil when the caller gave none
	entries bool // it is an EntryLoader
}

func (load Loader[T]) source() source {
	if load == nil {
		return source{}
	}
	return source{loader: load}
}

func (load EntryLoader[T]) source() source {
	if load == nil {
		return source{}
	}
	return source{loader: load, entries: true}
}

func (load BatchLoader[T]) source() source {
	if load == nil {
		return source{}
	}
	return source{loader: load}
}

// typeOf is the typed of T.
type typeOf[T any] struct {
	clone func(T) T // nil unless T has a method Clone() T
}

func newTypeOf[T any]() typeOf[T] {
	var t typeOf[T]
	if reflect.TypeFor[T]().Implements(reflect.TypeFor[interface{ Clone() T }]()) {
		t.clone = func(v T) T {
			if r := reflect.ValueOf(v); !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil() {
				return v // a method of a nil pointer need not bear it
			}
			return any(v).(interface{ Clone() T }).Clone()
		}
	}
	return t
}

func (typeOf[T]) new() any          { return new(T) }
func (typeOf[T]) value(ptr any) any { return *ptr.(*T) }

func (typeOf[T]) isBytes() bool {
	_, ok := any(new(T)).(*[]byte)
	return ok
}

func (t typeOf[T]) own(ptr any) any {
	if t.clone == nil || ptr == nil {
		return ptr
	}
	v := t.clone(*ptr.(*T))
	return &v
}

func (t typeOf[T]) load(ctx context.Context, from source, key string, old *boxed) (boxed, error) {
	switch load := from.loader.(type) {
	case Loader[T]:
		v, err := load(ctx)
		return boxed{Value: &v}, err
	case EntryLoader[T]:
		var given *Entry[T]
		if old != nil {
			e := unbox[T](*old)
			given = &e
		}
		e, err := load(ctx, given)
		return e.box(), err
	default:
		values, err := t.loadMany(ctx, from, []string{key})
		v, err := pick(values, err, key)
		return boxed{Value: v}, err
	}
}

func (typeOf[T]) loadMany(ctx context.Context, from source, keys []string) (map[string]any, error) {
	values, err := from.loader.(BatchLoader[T])(ctx, keys)
	ptrs := make(map[string]any, len(values))
	for key, v := range values {
		ptrs[key] = &v
	}
	return ptrs, err
}

// unboxed is the value that a pointer of the core points to; the zero value when there is none.
func unboxed[T any](ptr any) (v T) {
	if ptr, ok := ptr.(*T); ok {
		v = *ptr
	}
	return v
}

func unbox[T any](e boxed) Entry[T] {
	return Entry[T]{
		Value: unboxed[T](e.Value), TTL: e.TTL, StaleFor: e.StaleFor, KeepFor: e.KeepFor, NoStore: e.NoStore, ETag: e.ETag,
		Age: e.Age, Source: e.Source, token: e.token,
	}
}

func (e Entry[T]) box() boxed {
	return boxed{
		Value: &e.Value, TTL: e.TTL, StaleFor: e.StaleFor, KeepFor: e.KeepFor, NoStore: e.NoStore, ETag: e.ETag,
		Age: e.Age, Source: e.Source, token: e.token,
	}
}
