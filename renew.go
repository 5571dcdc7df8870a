package stockade

import "context"

// Renew is Fetch for a caller that was given seen and cannot use it, say because it is older than what the caller knows
// of: seen counts as missing, and is the old of the loader. One load in the fleet replaces it; what has replaced it
// already is returned without a load. An entry that is not from Redis is no different from none: then it is Fetch.
func (c *Cache[T]) Renew(ctx context.Context, key string, seen Entry[T], load EntryLoader[T]) (Entry[T], error) {
	from := load.source()
	e, err := c.view.traceRead(ctx, key, func(ctx context.Context) (boxed, error) { return c.view.renew(ctx, key, seen.token, from) })
	return unbox[T](e), err
}

func (c *view) renew(ctx context.Context, key, token string, load source) (boxed, error) {
	if err := c.checkRead(ctx, key, load); err != nil {
		return boxed{}, err
	}
	return c.read(ctx, key, load, token)
}

// isBy reports whether what is there was stored by the write of a token.
func (s sight) isBy(token string) bool { return s.there && token != "" && s.token == token }
