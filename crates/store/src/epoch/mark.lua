-- Mark a tag as rebuilt in an epoch, so that scripts on it work again.
-- KEYS  1 marker hash
-- ARGV  epoch
-- Returns {'marked'} · {'already'} · {'stale', epoch found} when a later epoch was marked
-- No TTL: the marker's absence means loss, so it must never expire. One per tag.
local found = redis.call('HGET', KEYS[1], 'epoch')
if found == ARGV[1] then return {'already'} end
if found and tonumber(found) > tonumber(ARGV[1]) then return {'stale', found} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'n', 0)
return {'marked'}
