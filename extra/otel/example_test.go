package otel_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockade-cache/stockade"
	"github.com/stockade-cache/stockade/extra/otel"
)

// A cache tells OpenTelemetry of the work behind its misses, and of its counters.
func Example() {
	server, err := miniredis.Run() // in your service: the Redis that you have
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	spans := tracetest.NewSpanRecorder() // in your service: an exporter, and otel.SetTracerProvider
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))

	telemetry, err := otel.New(otel.Options{Name: "users", TracerProvider: provider})
	if err != nil {
		panic(err)
	}
	defer telemetry.Close()
	cache, err := stockade.New[string](rdb, stockade.Options{Prefix: "user", Observer: telemetry.Observer()})
	if err != nil {
		panic(err)
	}
	defer cache.Close()
	if err := telemetry.Watch(cache); err != nil {
		panic(err)
	}

	for range 2 { // a miss and a hit
		if _, err := cache.Get(context.Background(), "7", func(context.Context) (string, error) { return "Ada", nil }); err != nil {
			panic(err)
		}
	}
	for _, span := range spans.Ended() {
		fmt.Println(span.Name())
	}
	// Output:
	// stockade.load
	// stockade.commit
	// stockade.read
}
