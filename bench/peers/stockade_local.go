package peers

import "github.com/stockade-cache/stockade"

// openStockadeLocal keeps decoded values in the process, and hears of changes elsewhere.
func openStockadeLocal[T any](c Config) (Peer[T], error) {
	options := stockade.Options{Local: stockade.LocalOptions{Entries: 10_000}}
	return openOurs[T](c, newClient(c), options, "Local.Entries 10,000")
}
