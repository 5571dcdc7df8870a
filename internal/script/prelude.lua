-- prelude.lua stands before every step.
-- now is the server's clock in µs: the only clock that a step knows.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- is_mine reports whether a lease or lock (token, then 16 digits, then "+" once it is awaited) is held under id: a token, or a token and its stamp.
local function is_mine(held, id)
  return held and string.sub(held, 1, #id) == id
end

-- is_awaited reports whether somebody waits for a lease or lock.
local function is_awaited(held)
  return #held > 32
end

-- await marks a lease or lock as awaited. pcall: at maxmemory the mark fails, and the waiter's poll stands in for the wake.
local function await(key, held)
  if not is_awaited(held) then
    redis.pcall('APPEND', key, '+')
  end
end

-- wake tells the fleet about a key; kind is 'w' (a lease or lock is free), or 'i' (the value has changed) and who did it. pcall: a user without rights to the channel must not undo a step that is done.
local function wake(channel, kind, key)
  redis.pcall('PUBLISH', channel, kind .. key)
end
