-- fail gives the lease back after a failed load and keeps the fleet off the key for a while.
-- KEYS  1 value   2 lease   3 failure
-- ARGV  1 token   2 stamp   3 until, server µs, 16 digits   4 message   5 lifetime of the failure in ms   6 channel
-- Returns {1 HELD, time} or {0 LOST, time}: the lease was lost, nothing is recorded
local lease = redis.call('GET', KEYS[2])
if not is_mine(lease, ARGV[1] .. ARGV[2]) then
  return {0, now}
end
redis.call('DEL', KEYS[2]) -- before the SET: once a script has written, maxmemory refuses it nothing
-- pcall: with a server that refuses it all the same the waiters still wake.
redis.pcall('SET', KEYS[3], ARGV[2] .. ARGV[3] .. ARGV[4], 'PX', ARGV[5])
if is_awaited(lease) then
  wake(ARGV[6], 'w', KEYS[1])
end
return {1, now}
