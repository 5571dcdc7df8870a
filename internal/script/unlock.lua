-- unlock releases a lock that is still held, and remembers that it did, so that a repeated unlock gets the same answer.
-- KEYS  1 lock   2 fences
-- ARGV  1 token   2 channel
-- Returns {1 RELEASED, time} or {0 LOST, time}
local lock = redis.call('GET', KEYS[1])
local fences = redis.call('GET', KEYS[2]) or ''
if is_mine(lock, ARGV[1]) then
  redis.call('DEL', KEYS[1]) -- before the SET: once a script has written, maxmemory refuses it nothing
  -- The last eight releases. pcall: a server that refuses it all the same has released the lock.
  local fence = string.sub(lock, 17, 32)
  local released = string.sub(ARGV[1] .. string.sub(fences, 17), 1, 128)
  redis.pcall('SET', KEYS[2], fence .. released, 'PX', 86400000)
  if is_awaited(lock) then
    wake(ARGV[2], 'w', KEYS[1])
  end
  return {1, now}
end
for at = 17, #fences, 16 do
  if string.sub(fences, at, at + 15) == ARGV[1] then
    return {1, now}
  end
end
return {0, now}
