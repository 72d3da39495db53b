-- Take requests out of a log that sliding_log.lua let pass and that never came: it is as if they had not been asked for.
-- KEYS  1 zset, see sliding_log.lua
-- ARGV  count, how many were let pass, receipt
-- Returns {'given', how many}
-- TTL: stays as it is; what is left in the log is no newer.
local count, granted = tonumber(ARGV[1]), tonumber(ARGV[2])
local ms, first = string.match(ARGV[3], '^(%d+),(%d+)$')
local given = 0
for at = first + granted - count, first + granted - 1 do
  given = given + redis.call('ZREM', KEYS[1], string.format('%s-%09d', ms, at))
end
return {'given', given}
