-- move goes from one state to another, which names other generations, and removes the shards of those it does not name.
-- KEYS  1 state   2... first the shards that are made, or must be there   then those that are removed
-- ARGV  1 state that the caller knows   2 new state   3 number of the first kind   4 "make" or "need"
-- Returns {state that it found, "done"}, or {state, ""} when nothing was done: another state, or a needed shard is gone
local state = redis.call('GET', KEYS[1]) or ''
if state ~= ARGV[1] then
  return {state, ''}
end
local last = 1 + tonumber(ARGV[3])
for i = 2, last do
  if ARGV[4] == 'make' then
    redis.call('SETBIT', KEYS[i], 0, 0)
  elseif redis.call('EXISTS', KEYS[i]) == 0 then
    return {state, ''}
  end
end
redis.call('SET', KEYS[1], ARGV[2])
for i = last + 1, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
return {state, 'done'}
