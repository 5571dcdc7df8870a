package middleware

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A tag is a name that pages carry so that they can be purged together. It is no list of pages: it holds the number of its
// last purge, and a page the number at which its run began. All tags of a Prefix share a slot of a cluster.

// tags are those of a middleware.
type tags struct {
	*steps
	window time.Duration // no run takes longer
}

const (
	noEpoch  = -1 // of a run whose beginning could not be numbered: its page is not stored
	clockTTL = 24 * time.Hour
)

// purge kinds.
type purgeKind uint8

const (
	not purgeKind = iota
	soft
	hard
)

func (t *tags) name(tag string) string { return t.prefix + ":tag:{" + t.prefix + "}:" + tag }

func (t *tags) clock() string { return t.prefix + ":tags:{" + t.prefix + "}" }

// begin numbers the beginning of a run.
func (t *tags) begin(ctx context.Context) (int64, error) {
	return do(ctx, t.steps, func(ctx context.Context) (int64, error) {
		return beginScript.Run(ctx, t.rdb, []string{t.clock()}, clockTTL.Milliseconds()).Int64()
	})
}

// keep sees to it that tags outlive a page that is to be stored, and reports whether it may.
func (t *tags) keep(ctx context.Context, names []string, epoch int64, life time.Duration) bool {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = t.name(name)
	}
	kept, err := do(ctx, t.steps, func(ctx context.Context) (bool, error) {
		life := max(life, t.window)
		return keepScript.Run(ctx, t.rdb, keys, epoch, life.Milliseconds(), t.window.Milliseconds()).Bool()
	})
	return err == nil && kept
}

// purge makes all pages of a tag go, or stale, whose runs have begun.
func (t *tags) purge(ctx context.Context, tag string, kind purgeKind) error {
	how := "hard"
	if kind == soft {
		how = "soft"
	}
	_, err := do(ctx, t.steps, func(ctx context.Context) (string, error) {
		return purgeScript.Run(ctx, t.rdb, []string{t.clock(), t.name(tag)}, clockTTL.Milliseconds(), t.window.Milliseconds(), how).Text()
	})
	return err
}

// purged says what purges have done to a page. A tag that is not there counts as purged.
func (t *tags) purged(ctx context.Context, p *page) (purgeKind, error) {
	keys := make([]string, len(p.Tags))
	for i, name := range p.Tags {
		keys[i] = t.name(name)
	}
	values, err := do(ctx, t.steps, func(ctx context.Context) ([]any, error) { return t.rdb.MGet(ctx, keys...).Result() })
	if err != nil {
		return hard, err
	}
	kind := not
	for _, value := range values {
		text, _ := value.(string)
		var hardAt, at int64
		if _, err := fmt.Sscanf(text, "%d %d", &hardAt, &at); err != nil || hardAt >= p.Epoch {
			return hard, nil
		}
		if at >= p.Epoch {
			kind = soft
		}
	}
	return kind, nil
}

// tagsOf are the tags that a response carries: those of Surrogate-Key, separated by spaces, of Cache-Tag, by commas, and of
// Cache-Groups (RFC 9875 2), which are of one origin.
func tagsOf(of target, h http.Header) []string {
	var names []string
	for _, line := range h["Surrogate-Key"] {
		names = append(names, strings.Fields(line)...)
	}
	names = append(names, list(h, "Cache-Tag")...)
	names = append(names, groups(of, h, "Cache-Groups")...)
	slices.Sort(names)
	return slices.Compact(names)
}

// groupInvalidation are the groups that the response to an unsafe request invalidates (RFC 9875 3).
func groupInvalidation(of target, h http.Header) []string {
	return groups(of, h, "Cache-Group-Invalidation")
}

// groups are the tags of a field that is a structured list of strings (RFC 9651 3.1). One that is not is ignored as a whole.
func groups(of target, h http.Header, field string) []string {
	var names []string
	for _, member := range list(h, field) {
		if !strings.HasPrefix(member, `"`) {
			return nil
		}
		name, rest, ok := unquote(member)
		if !ok || strings.Trim(rest, " ") != "" && !strings.HasPrefix(rest, ";") {
			return nil
		}
		names = append(names, "\x00"+of.origin()+"\x00"+name) // which no tag of another field can be
	}
	return names
}

// purged says what purges have done to a page that the request met.
func (v *visit) purged(p *page, inFlight bool) purgeKind {
	kind := not
	if v.index.Value != nil && p.Round < v.index.Value.Index.Round {
		kind = soft
	}
	if len(p.Tags) == 0 || !v.route.Tags || p.Epoch == noEpoch {
		return kind
	}
	byTag, err := v.m.tags.purged(v.r.Context(), p)
	if err != nil && inFlight { // it was made while the request waited
		return kind
	}
	return max(kind, byTag)
}
