-- commit stores a loaded value, unless the lease was lost or something newer happened to the key.
-- KEYS  1 value   2 lease
-- ARGV  1 token   2 stamp   3 entry   4 its lifetime in ms   5 channel
-- Returns {1 STORED, time}, {2 ALREADY, time}: by an earlier copy of this request, {0 REJECTED, time}
-- The token alone is not enough: a delayed copy of its acquire may take the lease again after an invalidation.
-- A head carries its writer's token in bytes 5 to 20. It is read first, so that a foreign type is an error and not overwritten.
local writer = redis.call('GETRANGE', KEYS[1], 5, 20)
local lease = redis.call('GET', KEYS[2])
if is_mine(lease, ARGV[1] .. ARGV[2]) then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
  redis.call('DEL', KEYS[2])
  if is_awaited(lease) then
    wake(ARGV[5], 'w', KEYS[1])
  end
  return {1, now}
end
if writer == ARGV[1] then
  return {2, now}
end
return {0, now}
