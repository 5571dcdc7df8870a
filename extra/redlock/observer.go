package redlock

import (
	"context"

	"github.com/stockade-cache/stockade"
)

// silent does nothing. The functions of an Observer that is joined with it are not nil, and survive their own panics.
var silent = stockade.Observer{
	Lock:  func(stockade.LockEvent) {},
	Wait:  func(stockade.WaitEvent) {},
	Redis: func(stockade.RedisEvent) {},
	Trace: func(ctx context.Context, _ stockade.SpanBegin) (context.Context, func(stockade.SpanEnd)) {
		return ctx, func(stockade.SpanEnd) {}
	},
}
