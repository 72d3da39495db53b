-- Put totals back as the database has them, in a new epoch.
-- KEYS  1 marker · 2 set of endpoints · then the counters
-- ARGV  epoch, epoch and n of the marker when the counters were listed ('' = none), how many endpoints, their names, then of each counter its value ('' = it is not there) and its TTL in
--       seconds (0 = none)
-- Returns {'restored'} · {'stale', epoch found} when a later epoch, or this one, is there already
--       {'changed'} when a flush was counted since the counters were listed: it may have made new ones
-- TTL: of what belongs to an hour or an instance, as in flush.lua.
local found = is_marker(KEYS[1]) and redis.call('HGET', KEYS[1], 'epoch')
if found and tonumber(found) >= tonumber(ARGV[1]) then return {'stale', found} end
local marker = is_a('hash', KEYS[1]) and redis.call('HMGET', KEYS[1], 'epoch', 'n') or {}
if (marker[1] or '') ~= ARGV[2] or (marker[2] or '') ~= ARGV[3] then return {'changed'} end
redis.call('DEL', KEYS[2])
local endpoints = tonumber(ARGV[4])
for place = 1, endpoints do redis.call('SADD', KEYS[2], ARGV[4 + place]) end
local at = 5 + endpoints
for place = 3, #KEYS do
  local value, ttl_s = ARGV[at], ARGV[at + 1]
  if value == '' then
    redis.call('DEL', KEYS[place])
  elseif ttl_s == '0' then
    redis.call('SET', KEYS[place], value)
  else
    redis.call('SET', KEYS[place], value, 'EX', ttl_s)
  end
  at = at + 2
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'n', 0)
return {'restored'}
