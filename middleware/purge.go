package middleware

import (
	"context"
	"errors"
)

// Purge removes what is stored of a URL, all its variants, on every instance. It is the URL as clients send it, with
// scheme and host: another spelling is another URL. A run that began before is not stored after. An error that Is
// [stockade.ErrRedis] means that older pages may be served until their lifetime ends: call it again.
func (m *Middleware) Purge(ctx context.Context, url string) error {
	keys, err := keysAt(url)
	if err != nil {
		return err
	}
	return m.cache.Invalidate(ctx, keys...)
}

// Expire makes what is stored of a URL stale, all its variants: it is served for as long as it may be served stale, while
// one run renews it; else it is validated, or made anew, for the next request. Errors are those of [Middleware.Purge].
func (m *Middleware) Expire(ctx context.Context, url string) error {
	keys, err := keysAt(url)
	if err != nil {
		return err
	}
	for _, key := range keys {
		e, err := m.cache.Lookup(ctx, key)
		if err == nil && e.Value.Index != nil {
			err = m.expireVariants(ctx, key, e)
		} else {
			err = m.cache.Expire(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expireVariants stores the index anew, with the next round: what belongs to an earlier one is stale.
func (m *Middleware) expireVariants(ctx context.Context, key string, seen entry) error {
	_, err := m.cache.Renew(ctx, key, seen, func(_ context.Context, old *entry) (entry, error) {
		if old == nil || old.Value.Index == nil {
			return entry{}, errFailed
		}
		x := *old.Value.Index
		x.Round++
		return indexEntry(&stored{ID: newID(), Index: &x}), nil
	})
	return err
}

// PurgeTag removes all pages that carry a tag, on every instance: a name in Surrogate-Key or Cache-Tag. It takes one
// command, however many pages there are; they are found to be gone when they are asked for. Route.Tags must be on where they
// are made. Errors are those of [Middleware.Purge].
func (m *Middleware) PurgeTag(ctx context.Context, tag string) error {
	return m.purgeTag(ctx, tag, hard)
}

// ExpireTag is [Middleware.Expire] for all pages that carry a tag.
func (m *Middleware) ExpireTag(ctx context.Context, tag string) error {
	return m.purgeTag(ctx, tag, soft)
}

func (m *Middleware) purgeTag(ctx context.Context, tag string, kind purgeKind) error {
	switch {
	case ctx == nil:
		return errors.New("middleware: ctx is nil: a context is required")
	case tag == "":
		return errors.New("middleware: the tag is empty")
	}
	return m.tags.purge(ctx, tag, kind)
}

// clear removes a mark, or a page that did not stand, so that the next request may fill the key; unless something else is
// there already.
func (m *Middleware) clear(ctx context.Context, key string, seen entry) {
	ctx = context.WithoutCancel(ctx)
	e, err := m.cache.Lookup(ctx, key)
	if err == nil && e.Value.ID == seen.Value.ID {
		_ = m.cache.Invalidate(ctx, key)
	}
}
