-- Restore monitors of a shard that is being rebuilt. A monitor that another node has restored stays as it is.
-- KEYS  1 schedule zset · 2 marker hash · 3 standing hash · 4… incident hash of each monitor
-- ARGV  epoch, then for each monitor: id, field of the standing hash, next_ms, failure_count or '' if it is not down,
--       first_failure_at, last_failure_at, alerted
-- Returns {'restored'} · {'superseded'} if the shard is not being rebuilt in this epoch
-- No TTLs: the keys are bounded by the number of monitors.
local gone = superseded(KEYS[2], ARGV[1])
if gone then return gone end
local incident = 4
for at = 2, #ARGV, 7 do
  local id = ARGV[at]
  if redis.call('HSETNX', KEYS[3], id, ARGV[at + 1]) == 1 then
    redis.call('ZADD', KEYS[1], score(ARGV[at + 2]), id)
    redis.call('DEL', KEYS[incident])
    if ARGV[at + 3] ~= '' then
      redis.call('HSET', KEYS[incident], 'failure_count', ARGV[at + 3], 'first_failure_at', ARGV[at + 4],
        'last_failure_at', ARGV[at + 5], 'alerted', ARGV[at + 6])
    end
  end
  incident = incident + 1
end
return {'restored'}
