package redistest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestEachGivesAnEmptyServer(t *testing.T) {
	for range 2 {
		Each(t, func(t *testing.T, s Server) {
			rdb := s.Client(t)
			if n, err := rdb.DBSize(t.Context()).Result(); n != 0 || err != nil {
				t.Errorf("DBSIZE = %d, %v, want 0", n, err)
			}
			set(t, rdb, "k", "v")
		})
	}
}

func TestFakeFollowsTheClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := Fake(t).Client(t)
		if err := rdb.Set(t.Context(), "k", "v", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Millisecond)
		if now, err := rdb.Time(t.Context()).Result(); err != nil || !now.Equal(time.Now()) {
			t.Errorf("TIME = %v, %v, want %v", now, err, time.Now())
		}
		if ttl, err := rdb.PTTL(t.Context(), "k").Result(); ttl != time.Millisecond || err != nil {
			t.Errorf("PTTL = %v, %v, want 1ms", ttl, err)
		}
		time.Sleep(time.Millisecond)
		if err := rdb.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET after the expiry: %v, want redis.Nil", err)
		}
	})
}

// A pipe that blocked writers would let both sides of a long pipeline wait for each other.
func TestLongPipelineAndUnreadMessages(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		rdb := s.Client(t)
		sub := rdb.Subscribe(t.Context(), "c")
		defer func() { _ = sub.Close() }()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		payload := strings.Repeat("x", 1000)
		pipe := rdb.Pipeline()
		for i := range 300 {
			pipe.Set(t.Context(), fmt.Sprint(i), payload, 0)
			pipe.Get(t.Context(), fmt.Sprint(i))
			pipe.Publish(t.Context(), "c", payload)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 300 {
			if _, err := sub.ReceiveMessage(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestManyClientsAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		rdb := s.Client(t)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := rdb.Incr(t.Context(), "n").Err(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n, err := rdb.Get(t.Context(), "n").Int(); n != 50 || err != nil {
			t.Errorf("n = %d, %v, want 50", n, err)
		}
	})
}

func TestRingReachesEachShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := []Server{Fake(t), Fake(t)}
		ring := Ring(t, shards)
		for i := range 20 {
			if err := ring.Set(t.Context(), fmt.Sprint(i), "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range shards {
			if n, err := s.Client(t).DBSize(t.Context()).Result(); n == 0 || err != nil {
				t.Errorf("DBSIZE of shard %d = %d, %v, want some of the 20", i, n, err)
			}
		}
	})
}

func set(t *testing.T, rdb redis.UniversalClient, key, value string) {
	t.Helper()
	if err := rdb.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatal(err)
	}
}
