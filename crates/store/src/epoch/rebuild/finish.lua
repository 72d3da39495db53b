-- Finish the rebuild of a tag: set the new epoch in its marker, and start the fences again at 0.
-- KEYS  1 marker hash
-- ARGV  epoch
-- Returns {'finished'} · {'superseded'} if the tag is not being rebuilt in this epoch
-- No TTL: a missing marker means that the tag is lost.
local gone = superseded(KEYS[1], ARGV[1])
if gone then return gone end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'n', 0)
redis.call('HDEL', KEYS[1], 'rebuilding')
return {'finished'}
