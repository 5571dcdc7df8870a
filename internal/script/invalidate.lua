-- invalidate removes a key: a commit that does not find its lease is rejected.
-- KEYS  1 value   2 lease   3 failure
-- ARGV  1 channel   2 origin
-- Returns {1, time}
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
wake(ARGV[1], 'i' .. ARGV[2], KEYS[1])
return {1, now}
