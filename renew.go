package stockade

import "context"

// Renew is Fetch for a caller that was given seen and cannot use it, say because it is older than what the caller knows
// of: seen counts as missing, and is the old of the loader. One load in the fleet replaces it; what has replaced it
// already is returned without a load. An entry that is not from Redis is no different from none: then it is Fetch.
func (c *Cache[T]) Renew(ctx context.Context, key string, seen Entry[T], load EntryLoader[T]) (Entry[T], error) {
	from := load.source()
	if err := c.view.checkRead(ctx, key, from); err != nil {
		return Entry[T]{}, err
	}
	e, err := c.view.read(ctx, key, from, seen.token)
	return unbox[T](e), err
}

// isBy reports whether what is there was stored by the write of a token.
func (s sight) isBy(token string) bool { return s.there && token != "" && s.token == token }
