-- get reads a value where a plain GET was redirected: a script goes to the master and around client-side caches.
-- KEYS  1 value
-- ARGV  none
-- Returns {1 HIT, time, value} or {0, time}
local value = redis.call('GET', KEYS[1])
if value then
  return {1, now, value}
end
return {0, now}
