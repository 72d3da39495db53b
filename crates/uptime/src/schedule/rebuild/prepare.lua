-- Join the rebuild of a shard, or start it: the remains of the lost epoch are deleted.
-- KEYS  1 schedule zset · 2 leases zset · 3 marker hash · 4 standing hash
-- ARGV  lost epoch (0 = unknown), new epoch ('' = do not start)
-- Returns {'done', epoch} if it has been rebuilt · {'rebuilding', epoch} · {'lost'} if no node has started
-- No TTLs: the sets are bounded by the number of monitors.
local lost = tonumber(ARGV[1])
local found = tonumber(redis.call('HGET', KEYS[3], 'epoch') or 0) or 0
if found > lost then return {'done', int(found)} end
local rebuilding = tonumber(redis.call('HGET', KEYS[3], 'rebuilding') or 0) or 0
if rebuilding > lost then return {'rebuilding', int(rebuilding)} end
if ARGV[2] == '' then return {'lost'} end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[4])
redis.call('HDEL', KEYS[3], 'epoch')
redis.call('HSET', KEYS[3], 'rebuilding', ARGV[2])
return {'rebuilding', ARGV[2]}
