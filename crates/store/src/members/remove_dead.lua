-- Remove a dead incarnation after a node has cleaned up after it. Requires the number of the current claim.
-- KEYS  1 info hash · 2 dead zset
-- ARGV  incarnation, claim
-- Returns {'removed'} · {'superseded'}
-- No TTLs: see join.lua.
if redis.call('HGET', KEYS[1], 'claim:' .. ARGV[1]) ~= ARGV[2] then return {'superseded'} end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1], 'claim:' .. ARGV[1])
return {'removed'}
