-- set writes a value through. The lease goes, so that a load in flight cannot commit over it.
-- KEYS  1 value   2 lease   3 failure
-- ARGV  1 entry   2 its lifetime in ms   3 not after, server µs   4 channel   5 origin
-- Returns {1 STORED, time} or {5 TOOLATE, time}: nothing was done
if now > tonumber(ARGV[3]) then
  return {5, now}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[2], KEYS[3])
wake(ARGV[4], 'i' .. ARGV[5], KEYS[1])
return {1, now}
