package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/stockade-cache/stockade"
)

// share settles a run whose response is complete and may be stored.
func (r *run) share(ctx context.Context, own *response) {
	now := time.Now()
	r.keep(ctx, &page{
		Status: own.status, Header: r.route.storedFields(own.header, now), Body: own.body, Vary: varyOf(own.header),
	})
}

// revalidated settles a run whose handler said that the old page still stands (RFC 9111 4.3.4).
func (r *run) revalidated(ctx context.Context, notModified http.Header) {
	now, old := time.Now(), r.old.Value.Page
	header := r.route.updated(old.Header, notModified, now)
	dated := header.Clone()
	dated["Age"] = notModified["Age"] // it is not stored, but how old the 304 is the page is
	var refused string
	r.terms, refused = r.route.storable(r.r, old.Status, dated, now)
	if refused != "" { // the 304 has changed that
		r.own = &response{old.Status, header, old.Body}
		r.unshared(refused, nil)
		return
	}
	r.keep(ctx, &page{Status: old.Status, Header: header, Body: old.Body, Vary: varyOf(header)})
}

// keep settles a run with a page, for the terms that it may be stored on.
func (r *run) keep(ctx context.Context, p *page) {
	ctx = context.WithoutCancel(ctx)
	p.Variant, p.Epoch = r.variant(p.Vary), r.epoch
	p.Age, p.Fresh, p.OnError, p.Validate = r.terms.age, r.terms.fresh, r.terms.onError, r.terms.validate
	p.Stale = r.terms.stale
	cc, _ := r.route.controlOf(p.Header)
	p.Authorized = allowsAuthorization(cc)
	e := r.terms.lifetimes(r.route, time.Since(r.start))
	e.Value = storedPage(p)
	if r.route.Tags {
		if p.Tags = tagsOf(r.target, p.Header); len(p.Tags) > 0 {
			e.NoStore = !r.m.tags.keep(ctx, p.Tags, p.Epoch, r.terms.total())
		}
	}
	switch {
	case r.index.Value == nil && r.route.indexed(p.Vary):
		e = r.keepVariant(ctx, e)
	case r.index.Value == nil:
	case !r.index.Value.Index.covers(p.Vary):
		e.NoStore = true
		r.widen(ctx, p.Vary)
	default:
		p.Round = r.index.Value.Index.Round
		e.NoStore = e.NoStore || r.old.Value == nil && !r.m.admit(ctx, r.visit, r.index.Value.Index)
	}
	r.settle(e, nil)
}

// keepVariant stores a page, that was made at the URL's own key, as the first variant of the URL, and returns the index
// for that key. Nobody knows the variant's key before the index is there, and it only gets there if nothing was purged
// meanwhile: so a plain Set is enough for the page.
func (r *run) keepVariant(ctx context.Context, e entry) entry {
	x := newIndex(e.Value.Page, r.terms)
	if !e.NoStore {
		e.Age = time.Since(r.start)
		if r.m.admit(ctx, r.visit, x) {
			_ = r.m.cache.SetEntry(ctx, r.variantKey(x), e) // without it the next request for the variant makes it
		}
	}
	return indexEntry(&stored{ID: newID(), Index: x})
}

// widen replaces the index of a URL whose variants turn out to vary by more. The next page that does so tries again.
func (r *run) widen(ctx context.Context, vary []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = r.m.cache.Renew(ctx, r.primary, r.index, func(_ context.Context, old *entry) (entry, error) {
		if old == nil || old.Value.Index == nil {
			return entry{}, errFailed
		}
		x := *old.Value.Index
		return indexEntry(&stored{ID: newID(), Index: &index{Generation: newGeneration(), Vary: union(x.Vary, vary), Life: x.Life}}), nil
	})
}

// indexEntry is how an index is stored. It stays as long again, to be renewed when it is still in use.
func indexEntry(s *stored) entry {
	return entry{Value: s, TTL: s.Index.Life, StaleFor: -1, KeepFor: s.Index.Life}
}

var errNotModified = stockade.ErrNotModified
