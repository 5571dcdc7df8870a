-- renew moves the expiry of a lease or a lock that is still held. It never re-creates one and never shortens one.
-- KEYS  1 lease or lock
-- ARGV  1 token   2 ms from now
-- Returns {1 HELD, time} or {0 LOST, time}
if not is_mine(redis.call('GET', KEYS[1]), ARGV[1]) then
  return {0, now}
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {1, now}
