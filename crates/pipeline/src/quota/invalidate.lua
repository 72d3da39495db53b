-- Declare a quota lost, unless it has been rebuilt in another epoch.
-- KEYS  1 marker hash
-- ARGV  epoch
-- Returns {'invalidated'}
-- No TTL: a missing marker means that the quota is lost.
if redis.call('HGET', KEYS[1], 'epoch') == ARGV[1] then redis.call('HDEL', KEYS[1], 'epoch') end
return {'invalidated'}
