-- Keep a part of a plan at hand, unless a newer version is known (L10).
-- KEYS  1 newest version known · 2 cache
-- ARGV  version, value, ttl_ms
-- Returns {'filled'} · {'stale'}
-- TTL: a cache; the version's is renewed with it and so outlives what could be stale.
local known = redis.call('GET', KEYS[1])
if known and tonumber(known) > tonumber(ARGV[1]) then return {'stale'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return {'filled'}
