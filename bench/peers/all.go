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
	}
}
