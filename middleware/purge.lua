-- Purges a tag: pages whose runs began before are gone, or stale.
-- KEYS: 1 clock of the tags; 2 tag, which holds the number of its last hard purge and that of its last purge of any kind
-- ARGV: 1 how long the clock is kept, ms; 2 how long a purge is remembered at least, ms; 3 "hard" or "soft"
-- Returns the number of the purge.
local t = redis.call('TIME')
local number = math.max(t[1] * 1000000 + t[2], (tonumber(redis.call('GET', KEYS[1])) or 0) + 1)
number = string.format('%.0f', number)
redis.call('SET', KEYS[1], number, 'PX', ARGV[1])
local value = redis.call('GET', KEYS[2])
local hard = number
if ARGV[3] == 'soft' and value then
  hard = string.match(value, '^%d+')
end
local ttl = math.max(redis.call('PTTL', KEYS[2]), tonumber(ARGV[2]))
redis.call('SET', KEYS[2], hard .. ' ' .. number, 'PX', ttl)
return number
