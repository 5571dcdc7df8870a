-- Sees to it that the tags of a page outlive it: what purged them must not be forgotten before the page is. A tag that is
-- not there may have been evicted, with a purge in it: then it counts as purged just before this page's run began.
-- KEYS: the tags
-- ARGV: 1 number of the page's run; 2 how long the page lives, ms; 3 how long a purge is remembered at least, ms
-- Returns 1, or 0 when the page's run began so long ago that it may have been purged and forgotten.
local t = redis.call('TIME')
if t[1] * 1000000 + t[2] - ARGV[1] > ARGV[3] * 1000 then
  return 0
end
for _, tag in ipairs(KEYS) do
  if redis.call('EXISTS', tag) == 0 then
    local before = string.format('%.0f', ARGV[1] - 1)
    redis.call('SET', tag, before .. ' ' .. before, 'PX', ARGV[2])
  elseif redis.call('PTTL', tag) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', tag, ARGV[2])
  end
end
return 1
