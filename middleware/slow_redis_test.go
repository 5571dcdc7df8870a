package middleware

import (
	"testing"
	"time"

	"github.com/stockade-cache/stockade/internal/redistest"
)

// What a step of Redis may take is free to choose: what else depends on it follows.
func TestRedisTimeoutMayBeLong(t *testing.T) {
	mw, err := New(redistest.Fake(t).Client(t), Options{Prefix: "slow", RedisTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := mw.Close(); err != nil {
		t.Fatal(err)
	}
}
