-- Remove requests from a log that sliding_log.lua allowed but that were never made.
-- KEYS  1 zset, see sliding_log.lua
-- ARGV  count, number of allowed requests, receipt
-- Returns {'given', number of requests given back}
-- TTL: unchanged, because the remaining entries are not newer.
local count, granted = tonumber(ARGV[1]), tonumber(ARGV[2])
local ms, first = string.match(ARGV[3], '^(%d+),(%d+)$')
local given = 0
for at = first + granted - count, first + granted - 1 do
  given = given + redis.call('ZREM', KEYS[1], string.format('%s-%09d', ms, at))
end
return {'given', given}
