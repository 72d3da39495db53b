-- Write the public view of a run. A view of an earlier version is refused, so that a late write cannot revive an ended
-- run.
-- KEYS  1 state hash
-- ARGV  version, ttl_ms, then fields and values
-- Returns {'written'} · {'late', version found}
-- TTL: renewed with each view while the run is not over; then the rest of the documented time.
local current = stored(redis.call('HGET', KEYS[1], 'version'), 0)
if current > tonumber(ARGV[1]) then return {'late', current} end
redis.call('HSET', KEYS[1], 'version', ARGV[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'written'}
