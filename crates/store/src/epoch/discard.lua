-- Mark a tag as lost, so that it is rebuilt in a new epoch.
-- KEYS  1 marker hash
-- ARGV  epoch
-- Returns {'discarded'} · {'lost', epoch found or ''} if it is lost already, or has been rebuilt
-- No TTL: a missing epoch means that the tag is lost.
local gone = lost(KEYS[1], ARGV[1])
if gone then return gone end
redis.call('HDEL', KEYS[1], 'epoch')
return {'discarded'}
