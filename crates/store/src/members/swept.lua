-- Forget a dead incarnation whose traces are swept. Only the claim that holds it may.
-- KEYS  1 info hash · 2 dead zset
-- ARGV  incarnation, claim
-- Returns {'forgotten'} · {'superseded'}
-- No TTLs: see join.lua.
if redis.call('HGET', KEYS[1], 'claim:' .. ARGV[1]) ~= ARGV[2] then return {'superseded'} end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1], 'claim:' .. ARGV[1])
return {'forgotten'}
