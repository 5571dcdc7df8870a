package main

import (
	"errors"
	"log/slog"

	"github.com/stockade-cache/stockade"
)

// logging is an Observer that logs: keys belong into a log, where a label of a metric must not have them.
func logging(log *slog.Logger) (o stockade.Observer) {
	o.Load = func(e stockade.LoadEvent) {
		switch {
		case e.Err == nil, errors.Is(e.Err, stockade.ErrNotFound):
		case errors.Is(e.Err, stockade.ErrClosed): // the service ends
			log.Info("load cancelled", "key", e.Key, "took", e.Took)
			return
		default:
			log.Error("load", "key", e.Key, "took", e.Took, "err", e.Err)
			return
		}
		log.Info("load", "key", e.Key, "took", e.Took, "outcome", e.Outcome)
	}
	o.Redis = func(e stockade.RedisEvent) {
		switch {
		case e.Err == nil:
			log.Info("redis works again", "node", e.Node)
		case e.Misconfigured:
			log.Error("redis is misconfigured", "op", e.Op, "node", e.Node, "err", e.Err)
		default:
			log.Warn("redis failed", "op", e.Op, "node", e.Node, "err", e.Err, "open", e.Open)
		}
	}
	return o
}
