-- Restore the totals of a shard from the database, in a new epoch.
-- KEYS  1 marker, 2 set of endpoints, then the counters
-- ARGV  epoch, epoch and n of the marker when the counters were listed ('' = none), number of endpoints, their names,
--       then of each counter its value ('' = delete it) and its TTL in seconds (0 = none)
-- Returns {'restored'}
--       {'stale', epoch found} if this epoch or a later one is there already
--       {'changed'} if a flush was counted since the counters were listed, which may have created new ones
-- TTL: as in flush.lua, for counters of an hour or an instance.
local found = is_marker(KEYS[1]) and redis.call('HGET', KEYS[1], 'epoch')
if found and tonumber(found) >= tonumber(ARGV[1]) then return {'stale', found} end
local marker = is_a('hash', KEYS[1]) and redis.call('HMGET', KEYS[1], 'epoch', 'n') or {}
if (marker[1] or '') ~= ARGV[2] or (marker[2] or '') ~= ARGV[3] then return {'changed'} end
redis.call('DEL', KEYS[2])
local endpoints = tonumber(ARGV[4])
for index = 1, endpoints do redis.call('SADD', KEYS[2], ARGV[4 + index]) end
local at = 5 + endpoints
for index = 3, #KEYS do
  local value, ttl_s = ARGV[at], ARGV[at + 1]
  if value == '' then
    redis.call('DEL', KEYS[index])
  elseif ttl_s == '0' then
    redis.call('SET', KEYS[index], value)
  else
    redis.call('SET', KEYS[index], value, 'EX', ttl_s)
  end
  at = at + 2
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'n', 0)
return {'restored'}
