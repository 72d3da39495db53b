-- End the lease of an incarnation now, so that the other nodes clean up after it without waiting for the lease to expire.
-- KEYS  1 live zset
-- ARGV  incarnation
-- Returns {'left'} · {'dead'} when it was no longer there
-- No TTLs: see join.lua.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {'dead'} end
redis.call('ZADD', KEYS[1], 0, ARGV[1])
return {'left'}
