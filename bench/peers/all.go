package peers

// All returns the contestants, in the order of the report.
func All[T any]() []Contestant[T] {
	return []Contestant[T]{
		{"none", "GET, and on a miss load and SET: no protection", openNone[T]},
		{"singleflight", "the same, shared within a process by golang.org/x/sync/singleflight", openSingleflight[T]},
		{"go-redis/cache", "Once of github.com/go-redis/cache/v9, shared within a process", openGoRedisCache[T]},
		{"redsync", "GET, and on a miss lock, GET again, load, SET, unlock, with github.com/go-redsync/redsync/v4", openRedsync[T]},
		{"redislock", "the same with github.com/bsm/redislock", openRedislock[T]},
		{"rockscache", "Fetch of github.com/dtm-labs/rockscache: a lock beside the value, and a deleted value serves while it is refreshed", openRockscache[T]},
		{"rockscache strong", "the same with StrongConsistency: a deleted value does not serve", openRockscacheStrong[T]},
		{"sturdyc", "GetOrFetch of github.com/viccon/sturdyc: values in the process, with Redis as its distributed storage", openSturdyc[T]},
		{"otter", "a loading cache in the process, github.com/maypok86/otter/v2, before GET, load and SET", openOtter[T]},
		{"rueidis", "GET, and on a miss load and SET, with github.com/redis/rueidis: no protection, pipelined", openRueidis[T]},
		{"rueidis tracked", "the same with its client-side cache: a hit asks nobody", openRueidisTracked[T]},
		{"rueidisaside", "Get of github.com/redis/rueidis/rueidisaside: its client-side cache and a lock in the fleet", openRueidisaside[T]},
		{"stockade polling", "stockade when no message comes: whoever waits polls", openStockadePolling[T]},
		{"stockade", "stockade with its defaults: whoever waits is woken", openStockade[T]},
		{"stockade stale", "stockade that serves stale values while one process refreshes them", openStockadeStale[T]},
		{"stockade local", "stockade with a tier of values in the process", openStockadeLocal[T]},
	}
}
