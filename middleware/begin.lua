-- Numbers the beginning of a run among the purges of tags.
-- KEYS: 1 clock of the tags
-- ARGV: 1 how long the clock is kept, ms
-- Returns the number, which is greater than all before.
local t = redis.call('TIME')
local number = math.max(t[1] * 1000000 + t[2], (tonumber(redis.call('GET', KEYS[1])) or 0) + 1)
number = string.format('%.0f', number)
redis.call('SET', KEYS[1], number, 'PX', ARGV[1])
return number
