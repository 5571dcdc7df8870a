-- expire makes a value stale now: it may be served while one process refreshes it. A value without a stale time is removed.
-- KEYS  1 value   2 lease   3 failure
-- ARGV  1 channel   2 origin
-- Returns {1, time}

-- number reads the uint64 whose eight bytes begin at a position of the head.
local function number(head, at)
  local n = 0
  for i = at, at + 7 do
    n = n * 256 + string.byte(head, i)
  end
  return n
end

-- bytes writes a number as eight bytes.
local function bytes(n)
  local s = ''
  for _ = 1, 8 do
    s = string.char(n % 256) .. s
    n = math.floor(n / 256)
  end
  return s
end

local head = redis.call('GETRANGE', KEYS[1], 0, 56) -- a foreign type is an error before anything is done
redis.call('DEL', KEYS[2]) -- before the SETRANGE: once a script has written, maxmemory refuses it nothing
if #head == 57 and string.sub(head, 1, 2) == '\153\1' then
  local fresh, stale = number(head, 32), number(head, 41)
  if stale <= fresh then
    redis.call('DEL', KEYS[1], KEYS[3])
  elseif fresh > 0 then
    -- Never later than it was: the value is as old as it is. SETRANGE keeps the expiry of the key.
    local til = math.min(stale, math.floor(now / 1000) + stale - fresh)
    redis.call('SETRANGE', KEYS[1], 31, bytes(0))
    redis.call('SETRANGE', KEYS[1], 40, bytes(til))
  end
end
wake(ARGV[1], 'i' .. ARGV[2], KEYS[1])
return {1, now}
