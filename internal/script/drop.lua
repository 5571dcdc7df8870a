-- drop commits "absent, and not to be remembered": the value goes, under the condition of a commit.
-- KEYS  1 value   2 lease
-- ARGV  1 token   2 stamp   3 channel
-- Returns {1 STORED, time} or {0 REJECTED, time}
local lease = redis.call('GET', KEYS[2])
if not is_mine(lease, ARGV[1] .. ARGV[2]) then
  return {0, now}
end
redis.call('DEL', KEYS[1], KEYS[2])
if is_awaited(lease) then
  wake(ARGV[3], 'w', KEYS[1])
end
return {1, now}
