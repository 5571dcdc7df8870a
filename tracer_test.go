package stockade

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tracer has a Trace that keeps what it is told of.
type tracer struct {
	mu    sync.Mutex
	spans []*recorded // guarded by mu: by their begin
}

type recorded struct {
	SpanBegin
	parent *recorded
	ends   []SpanEnd // guarded by tracer.mu
}

type recordedKey struct{}

func spanOf(ctx context.Context) *recorded {
	s, _ := ctx.Value(recordedKey{}).(*recorded)
	return s
}

func (r *tracer) trace(ctx context.Context, b SpanBegin) (context.Context, func(SpanEnd)) {
	s := &recorded{SpanBegin: b, parent: spanOf(ctx)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
	return context.WithValue(ctx, recordedKey{}, s), func(e SpanEnd) {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.ends = append(s.ends, e)
	}
}

func (r *tracer) traced(o *Options) { o.Observer.Trace = r.trace }

// tree is what was told of, with what is inside each span.
func (r *tracer) tree() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.below(nil)
}

// below is what is inside a span, by its kind: who is first may be chance.
func (r *tracer) below(parent *recorded) string {
	var list []string
	for _, s := range slices.SortedStableFunc(slices.Values(r.spans), func(a, b *recorded) int { return cmp.Compare(a.Span, b.Span) }) {
		if s.parent != parent {
			continue
		}
		text := fmt.Sprintf("%v %s", s.Span, strings.Join(s.Keys, "+"))
		if inside := r.below(s); inside != "" {
			text += "(" + inside + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// end is how the only span of a kind ended.
func (r *tracer) end(t testing.TB, span Span) SpanEnd {
	t.Helper()
	_, end := r.the(t, span)
	return end
}

func (r *tracer) the(t testing.TB, span Span) (*recorded, SpanEnd) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found *recorded
	for _, s := range r.spans {
		if s.Span != span {
			continue
		}
		if found != nil {
			t.Fatalf("more than one %v", span)
		}
		found = s
	}
	if found == nil || len(found.ends) != 1 {
		t.Fatalf("%v: got %+v, want one that has ended once", span, found)
	}
	return found, found.ends[0]
}

// wantEnded checks that every span has ended, once.
func (r *tracer) wantEnded(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if len(s.ends) != 1 {
			t.Errorf("%v %v has ended %d times", s.Span, s.Keys, len(s.ends))
		}
	}
}

type callerKey struct{}
