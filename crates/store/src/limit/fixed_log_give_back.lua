-- Remove requests from a log that fixed_log.lua has allowed and that were not used, as if they had never been counted.
-- KEYS  1 zset, see fixed_log.lua
-- ARGV  count, how many were allowed, receipt
-- Returns {'given', how many}
-- TTL: not changed; the window of the log ends when it would have ended.
local count, granted = tonumber(ARGV[1]), tonumber(ARGV[2])
local ms, first = string.match(ARGV[3], '^(%d+),(%d+)$')
local given = 0
for at = first + granted - count, first + granted - 1 do
  local member = at == 0 and ms or string.format('%s.%06d', ms, at)
  given = given + redis.call('ZREM', KEYS[1], member)
end
return {'given', given}
