-- Let a shard that was rebuilt work again, in its new epoch: fences are counted anew.
-- KEYS  1 marker hash
-- ARGV  epoch
-- Returns {'finished'} · {'over'} when it is not being rebuilt in this epoch any more
-- No TTL: that the marker is gone is how loss is seen.
if redis.call('HGET', KEYS[1], 'rebuilding') ~= ARGV[1] then return {'over'} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'n', 0)
redis.call('HDEL', KEYS[1], 'rebuilding')
return {'finished'}
