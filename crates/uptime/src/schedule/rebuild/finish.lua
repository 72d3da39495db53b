-- Finish the rebuild of a shard: it has its new epoch, and fences start again at 0.
-- KEYS  1 marker hash
-- ARGV  epoch
-- Returns {'finished'} · {'superseded'} if it is no longer being rebuilt in this epoch
-- No TTL: a missing marker means that the shard is lost.
if redis.call('HGET', KEYS[1], 'rebuilding') ~= ARGV[1] then return {'superseded'} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'n', 0)
redis.call('HDEL', KEYS[1], 'rebuilding')
return {'finished'}
