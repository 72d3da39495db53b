-- Schedule a monitor in its current generation. A check of an earlier generation will be refused.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash
-- ARGV  epoch, id, generation, lease_ms, next_ms, health if the store does not know the monitor
-- Returns {'planned'} · {'readded'} if it was not scheduled · {'already'} · {'newer'} · {'lost', epoch found or ''}
-- No TTLs: the sets are bounded by the number of monitors.
local gone = lost(KEYS[3], ARGV[1])
if gone then return gone end
local id, generation = ARGV[2], tonumber(ARGV[3])
local rest = ARGV[6]
local known, _, _, _, known_rest = split(redis.call('HGET', KEYS[4], id) or '')
if known then
  if tonumber(known) > generation then return {'newer'} end
  if tonumber(known) == generation then
    if redis.call('ZSCORE', KEYS[1], id) or redis.call('ZSCORE', KEYS[2], id) then return {'already'} end
    redis.call('ZADD', KEYS[1], score(ARGV[5]), id)
    return {'readded'}
  end
  rest = known_rest
end
redis.call('HSET', KEYS[4], id, join(ARGV[3], ARGV[4], 0, tonumber(ARGV[5]), rest))
redis.call('ZREM', KEYS[2], id)
redis.call('ZADD', KEYS[1], score(ARGV[5]), id)
return {'planned'}
