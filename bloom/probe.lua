-- probe asks whether keys may exist. A shard that is gone rules nothing out.
-- KEYS  1 state   2... shards of the current generation
-- ARGV  1 state that the caller knows   2 bits of a key   then for each key: the index of its shard in KEYS, its offsets
-- Returns {state, "" when the caller knows another one, else "1" (may exist) or "0" for each key}
local state = redis.call('GET', KEYS[1]) or ''
if state ~= ARGV[1] then
  return {state, ''}
end
local there = {}
for i = 2, #KEYS do
  there[i] = redis.call('EXISTS', KEYS[i]) == 1
end
local answers = {}
local bits = tonumber(ARGV[2])
for i = 3, #ARGV, bits + 1 do
  local shard = tonumber(ARGV[i])
  local may = '1'
  if there[shard] then
    for j = i + 1, i + bits do
      if redis.call('GETBIT', KEYS[shard], ARGV[j]) == 0 then
        may = '0'
        break
      end
    end
  end
  answers[#answers + 1] = may
end
return {state, table.concat(answers)}
