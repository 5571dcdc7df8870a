-- Counts one more variant of a URL, up to a bound.
-- KEYS: 1 the counter
-- ARGV: 1 the bound; 2 how long the counter is kept from its beginning, ms
-- Returns 1, or 0 when the bound is reached.
local count = tonumber(redis.call('GET', KEYS[1])) or 0
if count >= tonumber(ARGV[1]) then
  return 0
end
if count == 0 then
  redis.call('SET', KEYS[1], 1, 'PX', ARGV[2])
else
  redis.call('INCR', KEYS[1])
end
return 1
