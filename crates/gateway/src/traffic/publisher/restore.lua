-- Restore counters of a shard that is being rebuilt.
-- KEYS  1 marker, 2 set of endpoints, then the counters
-- ARGV  epoch, 'more', or 'last' to replace the set of endpoints, number of endpoints, their names, then of each counter
--       its value ('' = delete it) and its TTL in seconds (0 = none)
-- Returns {'restored'} · {'superseded'} if the shard is not being rebuilt in this epoch
-- TTL: as in flush.lua, for counters of an hour or an instance.
local gone = superseded(KEYS[1], ARGV[1])
if gone then return gone end
local endpoints = tonumber(ARGV[3])
if ARGV[2] == 'last' then redis.call('DEL', KEYS[2]) end
for index = 1, endpoints do redis.call('SADD', KEYS[2], ARGV[3 + index]) end
local at = 4 + endpoints
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
return {'restored'}
