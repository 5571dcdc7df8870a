package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockade-cache/stockade/extra/redlock"
)

func TestNewRefuses(t *testing.T) {
	at := func(addr string) redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	a, b, c, d := at("a:1"), at("b:1"), at("c:1"), at("d:1")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	pipeliner, err := cluster.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	for _, closer := range []interface{ Close() error }{ring, cluster, sentinel} {
		t.Cleanup(func() { _ = closer.Close() })
	}
	t.Cleanup(func() { _ = pipeliner.Close() })
	var none *redis.Client
	good := redlock.Options{Prefix: "ns"}
	type list = []redis.UniversalClient
	for _, test := range []struct {
		clients list
		opts    redlock.Options
		want    string
	}{
		{nil, good, "number of clients is 0"},
		{list{a}, good, "number of clients is 1"},
		{list{a, b}, good, "number of clients is 2"},
		{list{a, b, c, d}, good, "number of clients is 4"},
		{make(list, 257), good, "number of clients is 257"},
		{list{a, b, nil}, good, "clients[2] is <nil>"},
		{list{a, none, c}, good, "clients[1] is"},
		{list{a, ring, c}, good, "clients[1] is a *redis.Ring"},
		{list{a, b, cluster}, good, "clients[2] is a *redis.ClusterClient"},
		{list{sentinel, b, c}, good, "clients[0] is a client of Sentinel"},
		{list{a, b, at("a:1")}, good, "clients[2] is a:1: want servers that fail apart, it is that of clients[0]"},
		{list{a, b, b}, good, "clients[2] is b:1"},
		{list{pipeliner, pipeliner, a}, good, "clients[1] is #1"},
		{list{a, b, c}, redlock.Options{}, `Options.Prefix is ""`},
		{list{a, b, c}, redlock.Options{Prefix: "a{b"}, `Options.Prefix is "a{b"`},
		{list{a, b, c}, redlock.Options{Prefix: "ns", TTL: -1}, "Options.TTL is -1ns"},
		{list{a, b, c}, redlock.Options{Prefix: "ns", TTL: 9999 * time.Microsecond}, "Options.TTL is 9.999ms"},
		{list{a, b, c}, redlock.Options{Prefix: "ns", RedisTimeout: -1}, "Options.RedisTimeout is -1ns"},
		{list{a, b, c}, redlock.Options{Prefix: "ns", RedisTimeout: 999 * time.Microsecond}, "Options.RedisTimeout is 999µs"},
		{list{a, b, c}, redlock.Options{Prefix: "ns", TTL: time.Second, RedisTimeout: 251 * time.Millisecond}, "Options.RedisTimeout is 251ms"},
	} {
		l, err := redlock.New(test.clients, test.opts)
		if l != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New of %d clients, %+v: %v, want an error that says %q", len(test.clients), test.opts, err, test.want)
		}
	}
	for _, clients := range []list{{a, b, c}, {a, pipeliner, c}} {
		l, err := redlock.New(clients, good)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

func TestNilLock(t *testing.T) {
	var k *redlock.Lock
	if k.Unlock(t.Context()) == nil || k.Extend(t.Context(), time.Second) == nil {
		t.Error("a nil lock was released or extended")
	}
}
