-- Cache a part of a plan, unless a newer version of the plan exists (L10).
-- KEYS  1 newest version, 2 cached part
-- ARGV  version, value, ttl_ms
-- Returns {'filled'}, or {'stale'}
-- TTL: of a cache. The version is renewed with every part, so it outlives all of them.
if stored(redis.call('GET', KEYS[1]), 0, KEYS[1]) > tonumber(ARGV[1]) then return {'stale'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return {'filled'}
