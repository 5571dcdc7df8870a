-- touch commits "not modified": a new head for the payload that stands in Redis.
-- KEYS  1 value   2 lease
-- ARGV  1 token   2 stamp   3 new head   4 lifetime in ms   5 channel   6 head that the load was given
-- Returns {1 STORED, time}, {2 ALREADY, time}, {0 REJECTED, time},
--         {3 MISSING, time}: the value is gone and the lease still held, to be followed by a commit
local lease = redis.call('GET', KEYS[2])
local head = redis.call('GETRANGE', KEYS[1], 0, 56)
if is_mine(lease, ARGV[1] .. ARGV[2]) then
  if head ~= ARGV[6] then
    return {3, now}
  end
  redis.call('SETRANGE', KEYS[1], 0, ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('DEL', KEYS[2])
  if is_awaited(lease) then
    wake(ARGV[5], 'w', KEYS[1])
  end
  return {1, now}
end
if string.sub(head, 6, 21) == ARGV[1] then
  return {2, now}
end
return {0, now}
