-- Show what a run does. A view of an earlier version of the run's state is refused, so that a late one cannot bring
-- back what has ended.
-- KEYS  1 state hash
-- ARGV  version, ttl_ms, then fields and values
-- Returns {'shown'} · {'late'}
-- TTL: renewed with each view while the run lives, so that it fires only once nobody shows it any more.
local shown = tonumber(redis.call('HGET', KEYS[1], 'version') or 0) or 0
if shown > tonumber(ARGV[1]) then return {'late'} end
redis.call('HSET', KEYS[1], 'version', ARGV[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'shown'}
