-- release gives a lease back and stores nothing.
-- KEYS  1 value   2 lease
-- ARGV  1 token   2 channel
-- Returns {1 HELD, time} or {0 LOST, time}
local lease = redis.call('GET', KEYS[2])
if not is_mine(lease, ARGV[1]) then
  return {0, now}
end
redis.call('DEL', KEYS[2])
if is_awaited(lease) then
  wake(ARGV[2], 'w', KEYS[1])
end
return {1, now}
