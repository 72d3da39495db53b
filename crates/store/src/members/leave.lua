-- End an incarnation now, so that the others sweep it without waiting for its time.
-- KEYS  1 live zset
-- ARGV  incarnation
-- Returns {'left'} · {'dead'} when it was no longer there
-- No TTLs: see join.lua.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {'dead'} end
redis.call('ZADD', KEYS[1], 0, ARGV[1])
return {'left'}
