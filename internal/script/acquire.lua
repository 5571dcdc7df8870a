-- acquire asks for the lease of a key: the right to load it and to commit the result.
-- KEYS  1 value   2 lease   3 failure
-- ARGV  1 token   2 lease in ms   3 not after, server µs
--       4 "=" and the head of the unusable or stale value that the caller saw, or "" when it saw none
--       5 stamp of the lease that the caller has waited for, or "" when it has not waited
-- Returns {1 HIT, time, value}, or {1, time} for a value over 16 KiB, to be read by a trip
--         {2 GRANTED, time, stamp}
--         {3 BUSY, time, the holder's stamp, its PTTL}
--         {4 FAILED, time, failure}
--         {5 TOOLATE, time}: the lease is free, and the request too old to take it
-- GET, so that a foreign type is an error here and is never overwritten by a commit.
local value = redis.call('GET', KEYS[1])
if value and ARGV[4] ~= '=' .. string.sub(value, 1, 57) then
  if #value > 16384 then
    return {1, now}
  end
  return {1, now, value}
end

-- A failure is "stamp until message". It stands until its time; and for those who waited for that lease, however late they come.
local failure = redis.call('GET', KEYS[3])
if failure then
  local holds = now < (tonumber(string.sub(failure, 17, 32)) or 0)
  local awaited = ARGV[5] ~= '' and string.sub(failure, 1, 16) >= ARGV[5]
  if holds or awaited then
    return {4, now, failure}
  end
end

local lease = redis.call('GET', KEYS[2])
if not lease then
  -- A late request must not leave a lease that nobody holds.
  if now > tonumber(ARGV[3]) then
    return {5, now}
  end
  local stamp = string.format('%016.0f', now)
  -- Others that waited with this caller wait on: the grant starts awaited.
  local awaited = ARGV[5] ~= '' and '+' or ''
  redis.call('SET', KEYS[2], ARGV[1] .. stamp .. awaited, 'NX', 'PX', ARGV[2])
  return {2, now, stamp}
end
if is_mine(lease, ARGV[1]) then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  return {2, now, string.sub(lease, 17, 32)}
end
await(KEYS[2], lease)
return {3, now, string.sub(lease, 17, 32), redis.call('PTTL', KEYS[2])}
