package peers

import "github.com/stockade-cache/stockade"

// openStockadeStale serves values for another TTL while one process refreshes them.
func openStockadeStale[T any](c Config) (Peer[T], error) {
	return openOurs[T](c, newClient(c), stockade.Options{StaleFor: c.TTL}, "StaleFor as long as the TTL")
}
