-- add sets the bits of keys, when the state is the one that the caller knows. A shard that is gone is not made anew: it
-- would lack what was added before.
-- KEYS  1 state   2... shards
-- ARGV  1 state that the caller knows   then for each key: the number of its bits, the index of its shard in KEYS, its offsets
-- Returns {state, ""}
local state = redis.call('GET', KEYS[1]) or ''
if state ~= ARGV[1] then
  return {state, ''}
end
local there = {}
for i = 2, #KEYS do
  there[i] = redis.call('EXISTS', KEYS[i]) == 1
end
local i = 2
while i <= #ARGV do
  local last = i + 1 + tonumber(ARGV[i])
  local shard = tonumber(ARGV[i + 1])
  if there[shard] then
    for j = i + 2, last do
      redis.call('SETBIT', KEYS[shard], ARGV[j], 1)
    end
  end
  i = last + 1
end
return {state, ''}
