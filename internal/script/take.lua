-- take asks for a lock.
-- KEYS  1 lock   2 fences
-- ARGV  1 token   2 lifetime in ms   3 not after, server µs   4 "1" when the caller will wait, or "0"
-- Returns {2 GRANTED, time, fence}, {3 LOCKED, time, PTTL}, {5 TOOLATE, time}
-- fences is the last fence in 16 digits, then the tokens that were released last.
local lock = redis.call('GET', KEYS[1])
if is_mine(lock, ARGV[1]) then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return {2, now, string.sub(lock, 17, 32)}
end
if lock then
  if ARGV[4] == '1' then
    await(KEYS[1], lock)
  end
  return {3, now, redis.call('PTTL', KEYS[1])}
end
if now > tonumber(ARGV[3]) then
  return {5, now}
end
local fences = redis.call('GET', KEYS[2]) or ''
-- A delayed copy of a request whose lock is released already must not take it again.
for at = 17, #fences, 16 do
  if string.sub(fences, at, at + 15) == ARGV[1] then
    return {5, now}
  end
end
-- Time lifts the fence over a flush that lost the counter; the counter lifts it over a clock that stood still or went back.
local last = tonumber(string.sub(fences, 1, 16)) or 0
local fence = string.format('%016.0f', math.max(last + 1, now))
redis.call('SET', KEYS[2], fence .. string.sub(fences, 17), 'PX', math.max(86400000, tonumber(ARGV[2])))
redis.call('SET', KEYS[1], ARGV[1] .. fence, 'NX', 'PX', ARGV[2])
return {2, now, fence}
